//! What is said of objects that cannot be read, and who may delete them all the same.
//!
//! # Theory
//!
//! An object cannot be read if no key decrypts it, if the engine has lost it, or if what was stored
//! is no object. It can neither be shown nor be written, and its finalizers and preconditions are
//! unknown, so it cannot be deleted as others are. With the feature
//! `AllowUnsafeMalformedObjectDeletion`, whoever has the verb [`VERB`] for it may delete it without
//! being read: nothing of what a delete waits for is waited for, so that what depends on the object
//! may break.
//!
//! With the gate, errors also say that the object is corrupt, and a list names all of them. The
//! texts are those of Kubernetes' API server.
use crate::authorize::Decision;
use crate::catalog::Resource;
use crate::features::Feature;
use crate::request::DeleteOptions;
use crate::routed::{Attributes, Requested};
use crate::shared::Inner;
use crate::stored::{NOT_ENCRYPTING, read_error, store_error, unreadable};
use crate::verb::Verb;
use bytes::Bytes;
use setpoint_object::keys::ROOT;
use setpoint_object::status::{Cause, Details};
use setpoint_object::{ApiError, Reason};
use setpoint_store::{At, ReadFault, StoreError};

/// The verb that a user needs for such a delete, besides `delete`.
const VERB: &str = "unsafe-delete-ignore-read-errors";
/// In the audit log of each request for one.
const ANNOTATION: &str = "apiserver.k8s.io/unsafe-delete-ignore-read-error";
/// Maximum number of objects that the error of a list names.
const NAMED_MAX: usize = 100;
/// How many are looked for: one more than are named.
pub(crate) const UNREADABLE_MAX: usize = NAMED_MAX + 1;

impl Inner {
    /// Whether objects that cannot be read may be deleted.
    pub(crate) fn deletes_unreadable(&self) -> bool {
        self.features.is_on(Feature::AllowUnsafeMalformedObjectDeletion)
    }
    /// Whether a delete is one of an object that cannot be read.
    pub(crate) fn is_unsafe(&self, options: &DeleteOptions) -> bool {
        options.ignore_store_read_error && self.deletes_unreadable()
    }
    /// The error of who reads one object, or deletes it.
    pub(crate) fn error_of_one(&self, error: StoreError) -> ApiError {
        match error {
            StoreError::Unreadable { key, fault, reason } if self.deletes_unreadable() => {
                let key = key.strip_prefix(ROOT.trim_end_matches('/')).unwrap_or(&key);
                ApiError::internal(corrupt(key, fault, &reason))
            }
            error => read_error(error),
        }
    }
    /// The error of who reads an object to change it.
    pub(crate) fn error_of_write(&self, error: StoreError) -> ApiError {
        match error {
            StoreError::Unreadable { fault, reason, .. } if self.deletes_unreadable() => {
                ApiError::internal(described(fault, &reason))
            }
            error => store_error(error),
        }
    }
    /// The error of who reads many objects. `keys`: of those that cannot be read, the first
    /// [`UNREADABLE_MAX`], at least one. `resource`: what was asked for.
    pub(crate) async fn error_of_many(&self, resource: &Resource, keys: Vec<Bytes>) -> ApiError {
        self.described_many(resource, &keys).await.unwrap_or_else(|error| error)
    }
    /// The same, unless the store fails otherwise when it is asked for the reasons.
    async fn described_many(
        &self,
        resource: &Resource,
        keys: &[Bytes],
    ) -> Result<ApiError, ApiError> {
        if !self.deletes_unreadable() {
            let Some(key) = keys.first() else { return Ok(ApiError::internal(NOT_ENCRYPTING)) };
            let (fault, reason) = self.fault_of(key).await?;
            return Ok(unreadable(key, fault, &reason));
        }
        let mut causes = Vec::new();
        for key in keys.iter().take(NAMED_MAX) {
            let (fault, reason) = self.fault_of(key).await?;
            let key = String::from_utf8_lossy(key).into_owned();
            let message = corrupt(&key, fault, &reason);
            causes.push(Cause { reason: "UnexpectedServerResponse".into(), message, field: key });
        }
        if keys.len() > NAMED_MAX {
            let message = "too many errors, the list is truncated".to_owned();
            causes.push(Cause { reason: "FieldValueTooMany".into(), message, ..Cause::default() });
        }
        let resource = resource.group_resource();
        let message = format!("failed to read one or more {resource} from the storage");
        Ok(ApiError::new(500, Reason::StoreReadError, message).with_details(Details {
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            name: "list".to_owned(),
            causes,
            ..Details::default()
        }))
    }
    /// Why a value cannot be read: the store says so when its key is read alone.
    async fn fault_of(&self, key: &[u8]) -> Result<(ReadFault, String), ApiError> {
        match self.store.get(key, At::Latest).await {
            Err(StoreError::Unreadable { fault, reason, .. }) => Ok((fault, reason)),
            Err(error) => Err(read_error(error)),
            Ok(_) => Ok((ReadFault::Transform, NOT_ENCRYPTING.to_owned())),
        }
    }
    /// Checks that a user may delete the target of a request unread, and notes that it was tried.
    pub(crate) async fn may_delete_unread(&self, attributes: &Attributes) -> Result<(), ApiError> {
        attributes.annotate(ANNOTATION, "");
        let target = attributes.target()?;
        let request = attributes.with(Verb::from(VERB), Requested::Resource(target.clone()));
        let refused = |why: String| {
            ApiError::forbidden(&target.resource.group_resource(), &target.name, &why)
        };
        match self.authorization.decide(&request).await {
            Ok(Decision::Allow(_)) => Ok(()),
            Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => {
                Err(refused(format!("not permitted to do {VERB:?}, reason: {reason}")))
            }
            Err(error) => {
                Err(refused(format!("error while checking permission for {VERB:?}, {error}")))
            }
        }
    }
}

/// The error of a store for a value that it returns sealed: it encrypts nothing.
pub(crate) fn sealed(key: &[u8]) -> StoreError {
    StoreError::Unreadable {
        key: String::from_utf8_lossy(key).into_owned(),
        fault: ReadFault::Transform,
        reason: NOT_ENCRYPTING.to_owned(),
    }
}

/// The text for an object that cannot be read.
fn corrupt(key: &str, fault: ReadFault, reason: &str) -> String {
    let described = described(fault, reason);
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {described}"
    )
}
/// What cannot be done with its value, and why.
fn described(fault: ReadFault, reason: &str) -> String {
    match fault {
        ReadFault::Transform => {
            format!("data from the storage is not transformable revision=0: {reason}")
        }
        ReadFault::Decode(revision) => {
            format!("object not decodable revision={revision}: {reason}")
        }
    }
}
