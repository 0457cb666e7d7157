"""Makes the knowledge base's files: reads published wheels over the network, and compiles the hand-collected tables."""
