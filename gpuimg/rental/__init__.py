"""rental"""
