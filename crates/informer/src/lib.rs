//! The client side of list and watch: reflector, delta queue, indexer, shared informer.
