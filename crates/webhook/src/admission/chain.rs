//! Several handlers behind one path.

use super::{AdmissionHandler, AdmissionResponse, Call, ErasedHandler, Verdict};
use bytes::Bytes;
use json_patch::Patch;
use std::fmt;

/// Handlers that are called in order (WHK-8). The first denial ends the chain; the patches are
/// joined.
///
/// Each handler sees the object as changed by the earlier ones, so their patches need not be
/// disjoint: the API server applies the joined patches one after another. The response has the
/// warnings and audit annotations of all handlers that were called. The last value of an annotation
/// wins.
#[derive(Default)]
pub struct Chain {
    handlers: Vec<Box<dyn ErasedHandler>>,
}

impl Chain {
    /// An empty chain: admits everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler at the end.
    #[must_use]
    pub fn then(mut self, handler: impl AdmissionHandler) -> Self {
        self.handlers.push(Box::new(handler));
        self
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("n_handlers", &self.handlers.len()).finish()
    }
}

impl AdmissionHandler for Chain {
    async fn admit(&self, mut call: Call) -> AdmissionResponse {
        let mut joined = AdmissionResponse::allowed();
        for handler in &self.handlers {
            let response = handler.admit_boxed(call.clone()).await;
            joined.warnings.extend(response.warnings);
            joined.audit_annotations.extend(response.audit_annotations);
            if let Verdict::Denied(_) = response.verdict {
                joined.verdict = response.verdict;
                joined.patch = Patch::default();
                return joined;
            }
            if response.patch.0.is_empty() {
                continue;
            }
            match patched(call.request().object.as_ref(), &response.patch) {
                Ok(object) => call = call.with_object(object),
                Err(why) => {
                    let errored = AdmissionResponse::errored(500, why);
                    joined.verdict = errored.verdict;
                    joined.patch = Patch::default();
                    return joined;
                }
            }
            joined.patch.0.extend(response.patch.0);
        }
        joined
    }
}

fn patched(object: Option<&Bytes>, patch: &Patch) -> Result<Bytes, String> {
    let object = object.ok_or_else(|| "a patch for a request without an object".to_owned())?;
    let mut tree = serde_json::from_slice(object)
        .map_err(|error| format!("cannot read the object to patch it: {error}"))?;
    json_patch::patch(&mut tree, patch)
        .map_err(|error| format!("cannot apply the patch of a handler: {error}"))?;
    let changed = serde_json::to_vec(&tree);
    changed.map(Bytes::from).map_err(|error| format!("cannot write the patched object: {error}"))
}
