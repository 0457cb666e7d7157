"""dockerfile"""
