//! Keys of controllers.

use std::{fmt, hash::Hash};

/// The namespace and name of an object: the key that controllers queue and reconcilers get. The
/// kind is the controller's.
///
/// An alias of the informers' key, so that a key of a cache is a request without a conversion. It
/// has two names because each crate has those of its original: reconcilers get a
/// `reconcile.Request` in controller-runtime, and caches have keys in client-go. In this crate,
/// `Key` is the name of an object in a cache, and `Request` is what a controller queues.
pub type Request = setpoint_informer::Key;

/// The type of a controller's keys, if not [`Request`]: for example, one that names a cluster too.
/// Implemented for every suitable type.
///
/// `Display` is its text in logs.
pub trait RequestKey:
    Clone + Eq + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static
{
}

impl<R: Clone + Eq + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static> RequestKey for R {}
