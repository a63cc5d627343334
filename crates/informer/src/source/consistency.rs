//! Checks that a streamed list equals a list (FAC-9).
use super::{
    LIST_PAGES_MAX, ListPage, ListPart, ListRequest, ListStream, ListWatch, Selection, SourceError,
    WatchFrame, WatchRequest, WatchStream, end_marker,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The timeout of the list for the comparison: a minute, as servers have for ordinary requests.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest number of reported differences; the others are counted.
const DIFFERENCES_MAX: usize = 100;

/// A streamed list that differs from a list at the same version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the streamed list at resourceVersion {resource_version} differs from a list at it: {}", describe(.differences, *.n_differences))]
#[non_exhaustive]
pub struct Inconsistency {
    /// The version of both.
    pub resource_version: String,
    /// The first hundred differences, sorted by uid.
    pub differences: Vec<Difference>,
    /// The number of objects that differ.
    pub n_differences: usize,
}

/// An object that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The object of this uid was not streamed.
    NotStreamed(String),
    /// The object of this uid was not listed.
    NotListed(String),
    /// The object of this uid is different in each.
    Other(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStreamed(uid) => write!(f, "{uid} was not streamed"),
            Self::NotListed(uid) => write!(f, "{uid} was not listed"),
            Self::Other(uid) => write!(f, "{uid} is different"),
        }
    }
}

fn describe(differences: &[Difference], n_differences: usize) -> String {
    let mut texts: Vec<String> = differences.iter().take(5).map(ToString::to_string).collect();
    if n_differences > texts.len() {
        texts.push(format!("and {} more", n_differences - texts.len()));
    }
    texts.join(", ")
}

type Report = Arc<dyn Fn(&Inconsistency) + Send + Sync>;

/// Wraps a source and compares each streamed list with a list at exactly its version, before the
/// streamed list ends.
///
/// Detects server faults, at the cost of one list for each streamed list. client-go does this in
/// its tests only. Compares objects as the server sent them, by uid, ignoring the order of members
/// and the type, which the items of a built-in list omit. Differences are logged and reported, and
/// the informer goes on with the streamed list. If the list fails, this is logged and nothing is
/// compared. A list without a version cannot be compared.
pub struct ConsistencyDetector {
    source: Arc<dyn ListWatch>,
    report: Report,
}

impl fmt::Debug for ConsistencyDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsistencyDetector").finish_non_exhaustive()
    }
}

impl ConsistencyDetector {
    /// Checks a source. `report` is called for each streamed list that differs; a test may panic in
    /// it.
    pub fn new(
        source: impl ListWatch,
        report: impl Fn(&Inconsistency) + Send + Sync + 'static,
    ) -> Self {
        Self { source: Arc::new(source), report: Arc::new(report) }
    }
}

impl ListWatch for ConsistencyDetector {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        self.source.list(request)
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        self.source.list_in_parts(request)
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let is_list = request.send_initial_events;
            let frames = self.source.watch(request).await?;
            if !is_list {
                return Ok(frames);
            }
            let (source, report) = (self.source.clone(), self.report.clone());
            let checked = Checked { frames, source, report, streamed: Some(Objects::default()) };
            Ok(stream::unfold(checked, |mut checked| async move {
                let frame = checked.next().await?;
                Some((frame, checked))
            })
            .boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.source.can_stream_list()
    }

    fn selection(&self) -> Selection {
        self.source.selection()
    }
}

/// Objects by uid: a digest of each.
type Objects = BTreeMap<String, u64>;

struct Checked {
    frames: WatchStream,
    source: Arc<dyn ListWatch>,
    report: Report,
    /// `None` once the list has ended.
    streamed: Option<Objects>,
}

impl Checked {
    async fn next(&mut self) -> Option<Result<WatchFrame, SourceError>> {
        let frame = self.frames.next().await?;
        let Some(streamed) = &mut self.streamed else { return Some(frame) };
        match &frame {
            Ok(WatchFrame::Added(object) | WatchFrame::Modified(object)) => {
                streamed.extend(digest(object));
            }
            Ok(WatchFrame::Deleted(object)) => {
                if let Some((uid, _)) = digest(object) {
                    streamed.remove(&uid);
                }
            }
            Ok(WatchFrame::Bookmark(object)) => {
                if let Some(resource_version) = end_marker(object)
                    && let Some(streamed) = self.streamed.take()
                {
                    self.compare(streamed, resource_version).await;
                }
            }
            _ => {}
        }
        Some(frame)
    }

    async fn compare(&mut self, streamed: Objects, resource_version: String) {
        if matches!(&*resource_version, "" | "0") {
            tracing::debug!("a streamed list without a version cannot be compared");
            return;
        }
        let listed = match timeout(LIST_TIMEOUT, list(&*self.source, &resource_version)).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => {
                let error = setpoint_object::error::chain(&error);
                tracing::info!(error, "the list to compare a streamed list with failed");
                return;
            }
            Err(_) => {
                tracing::info!("the list to compare a streamed list with did not arrive in time");
                return;
            }
        };
        if let Some(found) = differences(&streamed, &listed, resource_version) {
            tracing::error!("{found}");
            (self.report)(&found);
        }
    }
}

fn differences(
    streamed: &Objects,
    listed: &Objects,
    resource_version: String,
) -> Option<Inconsistency> {
    let uids = streamed.keys().chain(listed.keys().filter(|uid| !streamed.contains_key(*uid)));
    let difference = |uid: &String| match (streamed.get(uid), listed.get(uid)) {
        (Some(streamed), Some(listed)) if streamed == listed => None,
        (Some(_), Some(_)) => Some(Difference::Other(uid.clone())),
        (None, _) => Some(Difference::NotStreamed(uid.clone())),
        (_, None) => Some(Difference::NotListed(uid.clone())),
    };
    let mut differences: Vec<Difference> = uids.filter_map(difference).collect();
    differences.sort_by(|a, b| a.uid().cmp(b.uid()));
    let n_differences = differences.len();
    differences.truncate(DIFFERENCES_MAX);
    (n_differences > 0).then_some(Inconsistency { resource_version, differences, n_differences })
}

impl Difference {
    /// The object's uid.
    pub fn uid(&self) -> &str {
        match self {
            Self::NotStreamed(uid) | Self::NotListed(uid) | Self::Other(uid) => uid,
        }
    }
}

/// The list at exactly a version.
async fn list(source: &dyn ListWatch, resource_version: &str) -> Result<Objects, SourceError> {
    let mut request = ListRequest {
        resource_version: resource_version.to_owned(),
        exact: true,
        ..ListRequest::default()
    };
    let mut objects = Objects::new();
    for _ in 0..LIST_PAGES_MAX {
        let mut parts = source.list_in_parts(request).await?;
        let head = loop {
            match parts.next().await {
                Some(Ok(ListPart::Items(items))) => {
                    objects.extend(items.iter().filter_map(|item| digest(&item.bytes)));
                }
                Some(Ok(ListPart::End(head))) => break head,
                Some(Err(error)) => return Err(error),
                None => return Err(SourceError::protocol("a list without an end")),
            }
            tokio::task::coop::consume_budget().await;
        };
        if head.resource_version != resource_version {
            let what = format!("a list at {} instead", head.resource_version);
            return Err(SourceError::protocol(what));
        }
        let Some(token) = head.continue_token else { return Ok(objects) };
        request = ListRequest { continue_token: Some(token), ..ListRequest::default() };
    }
    Err(SourceError::protocol("a list that does not end"))
}

/// The uid of an object, or its name if it has none, and a digest of the object without its type.
fn digest(object: &Bytes) -> Option<(String, u64)> {
    let mut value: Value = serde_json::from_slice(object).ok()?;
    let members = value.as_object_mut()?;
    members.remove("kind");
    members.remove("apiVersion");
    let metadata = members.get("metadata")?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    let uid = match text("uid") {
        "" => format!("{}/{}", text("namespace"), text("name")),
        uid => uid.to_owned(),
    };
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    Some((uid, hasher.finish()))
}
