//! Deletes one object, or all that match.

use std::sync::Arc;

use bytes::Bytes;
use kube_core::params::{DeleteParams, ListParams};
use serde_json::value::RawValue;
use setpoint_informer::Cacheable;
use setpoint_object::{Skim, skim};

use super::{Api, ClientError, WriteOutcome, live::is_absent, own_writes::is_gone};
use crate::{
    pass::{Pass, WRITES_MAX},
    request::Request,
};

impl<K: Cacheable> Api<K> {
    /// Deletes an object. With finalizers or a grace period, it may still exist afterwards.
    /// Succeeds if the object is already gone.
    ///
    /// `params` can set the grace period, the propagation policy, and the preconditions uid and
    /// resourceVersion (CLI-9).
    ///
    /// # Errors
    ///
    /// The server refuses, such as for a failed precondition (409), or cannot be reached.
    pub async fn delete(&self, key: &Request, params: &DeleteParams) -> Result<(), ClientError> {
        let call = self.call("delete", key.to_string());
        let path = self.path_of(&call, key)?;
        let request = path.delete(&key.name, &self.delete_params(params));
        let answer = self.send_and_look(call, request).await;
        let was_dry_run =
            self.client.options.is_dry_run || params.dry_run || matches!(answer, Ok((_, true)));
        let answer = answer.map(|(body, _)| body);
        let left = if was_dry_run { Left::Unknown } else { self.note_deleted(key, &answer) };
        let body = answer.as_ref().ok().cloned();
        let answer = match answer {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        };
        if let Some(pass) = self.client.pass() {
            let written = match &left {
                Left::Marked(version) => Some(&**version).zip(body.as_ref()),
                Left::Gone(_) | Left::Unknown => None,
            };
            let outcome = WriteOutcome::of(&answer);
            pass.note_written(self.place(), key, "delete", written, outcome);
            if let Left::Gone(uid) = left {
                pass.note_gone(self.place(), key, uid, None);
            }
        }
        answer
    }

    /// Deletes all objects that `which` selects. Without a namespace: in all namespaces.
    ///
    /// One request, but not atomic: if it fails, some objects may be deleted. Reads of own writes
    /// do not wait for it.
    ///
    /// # Errors
    ///
    /// The server refuses, or cannot be reached.
    pub async fn delete_collection(
        &self,
        namespace: Option<&str>,
        params: &DeleteParams,
        which: &ListParams,
    ) -> Result<(), ClientError> {
        let call = self.call("delete all of", namespace.unwrap_or_default());
        let path = self.path(&call, namespace)?;
        let request = path.delete_collection(&self.delete_params(params), which);
        let verb = call.verb;
        let answer = self.send_and_look(call, request).await;
        let was_dry_run =
            self.client.options.is_dry_run || params.dry_run || matches!(answer, Ok((_, true)));
        let answer = answer.map(|(body, _)| body);
        if let Some(pass) = self.client.pass() {
            let all = Request::new(namespace.unwrap_or_default(), "");
            pass.note_written(self.place(), &all, verb, None, WriteOutcome::of(&answer));
        }
        let body = answer?;
        if let Some(pass) = self.client.pass().filter(|_| !was_dry_run) {
            self.note_all_deleted(pass, &body);
        }
        Ok(())
    }

    /// Records the last of the deleted objects for the pass, if the answer is a list. It has their
    /// states before or after the deletion, which leaves a newer version or none.
    fn note_all_deleted(&self, pass: &Pass, body: &[u8]) {
        #[derive(serde::Deserialize)]
        struct List<'a> {
            #[serde(default, borrow)]
            items: Option<Vec<&'a RawValue>>,
        }
        let list = serde_json::from_slice::<List<'_>>(body).ok();
        let items = list.and_then(|list| list.items).unwrap_or_default();
        for item in &items[items.len().saturating_sub(WRITES_MAX)..] {
            let Ok(object) = Skim::of(item.get().as_bytes()) else { continue };
            // A second deletion may change nothing.
            if object.deletion_timestamp.is_empty() {
                let key = Request::new(&*object.namespace, &*object.name);
                let (uid, version) =
                    (Arc::from(&*object.uid), Arc::from(&*object.resource_version));
                pass.note_gone(self.place(), &key, uid, Some(version));
            }
        }
    }

    /// Remembers the result of a deletion.
    fn note_deleted(&self, key: &Request, answer: &Result<Bytes, ClientError>) -> Left {
        match answer {
            Ok(body) => match Skim::of(body) {
                Ok(object) if object.kind != "Status" && !object.uid.is_empty() => {
                    // The answer has the object as marked for deletion, or its last state.
                    if object.deletion_timestamp.is_empty() || is_gone(body) {
                        return self.note_gone(key, Some(&object.uid));
                    }
                    self.note_answer(key, body);
                    Left::Marked(object.resource_version.to_string())
                }
                _ => self.note_gone(key, skim::scalar(body, &["details", "uid"]).as_deref()),
            },
            Err(error) if is_absent(error) => self.note_gone(key, None),
            Err(_) => Left::Unknown,
        }
    }

    /// Remembers that the object with this uid is gone; without a uid, that of the cache.
    fn note_gone(&self, key: &Request, uid: Option<&str>) -> Left {
        let uid = match uid {
            Some(uid) => uid.into(),
            None => self.cached_uid(key).unwrap_or_default(),
        };
        self.client.own.note_gone(&self.resource, key, &uid);
        Left::Gone(uid)
    }

    fn delete_params(&self, params: &DeleteParams) -> DeleteParams {
        let mut params = params.clone();
        params.dry_run |= self.client.options.is_dry_run;
        params
    }
}

/// What a deletion left.
enum Left {
    /// The object, marked for deletion, at this version.
    Marked(String),
    /// Nothing: the object with this uid is gone. The uid is empty if it is unknown.
    Gone(Arc<str>),
    /// The server did not say.
    Unknown,
}
