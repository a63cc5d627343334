//! GET, LIST and WATCH.
use crate::registry::Registry;
use crate::request::*;
use crate::watch::WatchStream;
use setpoint_object::ApiError;

impl Registry {
    /// GET of an object or of a readable subresource (`status`, `scale`).
    pub async fn get(
        &self,
        _caller: &Caller,
        _target: &Target,
        _resource_version: &str,
    ) -> Result<Object, ApiError> {
        todo!()
    }
    /// LIST.
    pub async fn list(
        &self,
        _caller: &Caller,
        _target: &Target,
        _options: &ListOptions,
    ) -> Result<List, ApiError> {
        todo!()
    }
    /// WATCH. Refusals come as `Err` (before the stream), a too old start as the stream's first `Err`.
    pub async fn watch(
        &self,
        _caller: &Caller,
        _target: &Target,
        _options: &ListOptions,
    ) -> Result<WatchStream, ApiError> {
        todo!()
    }
}
