//! Prints pods: the smallest controller.
