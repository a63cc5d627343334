//! Deletes one object, or all that match.

use bytes::Bytes;
use kube_core::params::{DeleteParams, ListParams};
use setpoint_informer::Cacheable;
use setpoint_object::{Skim, skim};

use super::{Api, ClientError, WriteOutcome, live::is_absent, own_writes::is_gone};
use crate::request::Request;

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
        if !was_dry_run {
            self.note_deleted(key, &answer);
        }
        let answer = match answer {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        };
        if let Some(pass) = self.client.pass() {
            pass.note_written(&self.resource, key, "delete", None, WriteOutcome::of(&answer));
        }
        answer
    }

    /// Deletes all objects that `which` selects. Without a namespace: in all namespaces.
    ///
    /// One request, but not atomic: if it fails, some objects may be deleted.
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
        let answer = self.send(call, request).await.map(drop);
        if let Some(pass) = self.client.pass() {
            let all = Request::new(namespace.unwrap_or_default(), "");
            pass.note_written(&self.resource, &all, verb, None, WriteOutcome::of(&answer));
        }
        answer
    }

    /// Remembers the result of a deletion: an object marked for deletion, or none.
    fn note_deleted(&self, key: &Request, answer: &Result<Bytes, ClientError>) {
        let own = &self.client.own;
        let gone = |uid: Option<&str>| match uid {
            Some(uid) => own.note_gone(&self.resource, key, uid),
            None => {
                let cached = self.cached_uid(key).unwrap_or_default();
                own.note_gone(&self.resource, key, &cached);
            }
        };
        match answer {
            Ok(body) => match Skim::of(body) {
                Ok(object) if object.kind != "Status" && !object.uid.is_empty() => {
                    // The answer has the object as marked for deletion, or its last state.
                    if !object.deletion_timestamp.is_empty() && !is_gone(body) {
                        own.note_answer(&self.resource, key, body);
                    } else {
                        gone(Some(&object.uid));
                    }
                }
                _ => gone(skim::scalar(body, &["details", "uid"]).as_deref()),
            },
            Err(error) if is_absent(error) => gone(None),
            Err(_) => {}
        }
    }

    fn delete_params(&self, params: &DeleteParams) -> DeleteParams {
        let mut params = params.clone();
        params.dry_run |= self.client.options.is_dry_run;
        params
    }
}
