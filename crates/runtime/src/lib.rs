//! Manager, controllers and reconcilers.
