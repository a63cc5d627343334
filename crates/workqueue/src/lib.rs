//! A queue of keys that hands each key to one worker at a time.
