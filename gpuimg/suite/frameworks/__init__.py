"""Frameworks under test: one small adapter each, all of the shape that :mod:`.adapter` describes.

Reading order: :mod:`.adapter` (the shape), :mod:`.torch` (the fullest adapter), :mod:`.checks` (what is asked of
every adapter), then the rooms it calls: :mod:`.compute`, :mod:`.training`, :mod:`.inference`, :mod:`.engines`.
References are worked out in :mod:`.reference` with the standard library alone, so that a framework never judges
itself; :mod:`.evidence` decides whether the work really ran on the GPU.
"""
