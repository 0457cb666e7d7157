"""Streamed layers: a locked wheel becomes its image layer directly, without a container and without a snapshot.

``wheel_tar`` (wheel → tar, the files a normal install gives) → ``blobs`` (tar → compressed blob, cached by wheel
hash) → ``grouping`` (which wheels share a layer) → ``assembly`` (base manifest + layers → image in a registry).
"""
