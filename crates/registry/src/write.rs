//! Create, update, patch and delete: the one write path.
use crate::registry::Registry;
use crate::request::*;
use setpoint_object::ApiError;

impl Registry {
    /// POST to a collection, or to a connect-like subresource (`binding`, `eviction`, `token`).
    pub async fn create(
        &self,
        _caller: &Caller,
        _target: &Target,
        _body: Body,
        _options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        todo!()
    }
    /// PUT.
    pub async fn update(
        &self,
        _caller: &Caller,
        _target: &Target,
        _body: Body,
        _options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        todo!()
    }
    /// PATCH.
    pub async fn patch(
        &self,
        _caller: &Caller,
        _target: &Target,
        _patch_type: PatchType,
        _body: Body,
        _options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        todo!()
    }
    /// DELETE of one object.
    pub async fn delete(
        &self,
        _caller: &Caller,
        _target: &Target,
        _options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        todo!()
    }
    /// DELETE of a collection: the objects that matched, as they were.
    pub async fn delete_collection(
        &self,
        _caller: &Caller,
        _target: &Target,
        _list: &ListOptions,
        _options: &DeleteOptions,
    ) -> Result<List, ApiError> {
        todo!()
    }
}
