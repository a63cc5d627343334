//! Calls to real HTTPS servers on the loopback interface.

mod calls;
mod server;
