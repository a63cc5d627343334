//! What a reconciler is asked to look at.

use std::{fmt, hash::Hash};

/// The namespace and name of an object: what controllers queue and reconcilers are given. Its kind
/// is the controller's.
pub type Request = setpoint_informer::Key;

/// What a controller may queue instead of a [`Request`]: for example one that names a cluster too.
/// Implemented for every type that fits.
///
/// `Display` is how it is written in logs.
pub trait RequestKey:
    Clone + Eq + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static
{
}

impl<R: Clone + Eq + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static> RequestKey for R {}
