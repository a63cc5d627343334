//! The Neutron back end: stories that are told against a Neutron in memory and against the real
//! one, tokens against a Keystone in memory, and the controller through crashes and faults.

mod cloud;
mod controller;
mod fake;
mod keystone;
mod plans;
mod real;
mod stories;
