//! All changes of objects, in the store's order.

use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::Origin;
use setpoint_store::{Batch, Change, Revision, Store, StoreError};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Maximum number of changes that are stored, the newest.
const LINES_MAX: usize = 4_096;
/// Maximum bytes of the objects of changes that are stored without their line. 16 MiB: most tests
/// never display their timeline, and then need not parse what changed.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Between two attempts to read a store that fails.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of changed fields in a line.
const FIELDS_MAX: usize = 6;
/// Maximum length of a value in a line, in characters.
const VALUE_CHARS_MAX: usize = 48;
/// Maximum depth of the comparison of two versions; below it a value has changed as a whole.
const DEPTH_MAX: usize = 16;

/// All changes of objects since a [`TestEnv`](crate::TestEnv) started, except for the initial
/// objects of a control plane. Displays one line per change: seconds, revision, action, object,
/// writer, changed fields, and in brackets the controller and key of a change that a reconcile
/// made. Stores the newest 4,096 changes. Clones share it.
#[derive(Clone)]
pub struct Timeline {
    inner: Arc<Inner>,
}

struct Inner {
    started: Instant,
    origin: Box<OriginOf>,
    lines: Mutex<Lines>,
    /// The last revision that has been recorded.
    reached: watch::Sender<u64>,
}

/// Returns the reconcile that made a revision, if the server knows it.
type OriginOf = dyn Fn(Revision) -> Option<Arc<Origin>> + Send + Sync;

#[derive(Default)]
struct Lines {
    newest: VecDeque<Line>,
    n_dropped: usize,
    /// How many of the lines, from the oldest, are certainly texts.
    n_texts: usize,
    /// The bytes of the others.
    n_bytes: usize,
}

/// A line, or what it will be made of.
enum Line {
    Text {
        /// The revision of a change. Its origin is looked up for display, because the server learns
        /// it only after the commit.
        revision: Option<Revision>,
        /// `None`: the change is not one of an object.
        text: Option<String>,
    },
    Change {
        elapsed: Duration,
        change: Change,
    },
}

impl Line {
    fn n_bytes(&self) -> usize {
        match self {
            Self::Text { .. } => 0,
            Self::Change { change, .. } => {
                let previous = change.previous.as_ref().map_or(0, |entry| entry.value.len());
                previous + change.value.as_ref().map_or(0, |value| value.len())
            }
        }
    }

    /// The text, with the revision of a change.
    fn text(&self) -> Option<(Option<Revision>, Cow<'_, str>)> {
        match self {
            Self::Text { revision, text } => Some((*revision, Cow::Borrowed(text.as_deref()?))),
            Self::Change { elapsed, change } => {
                let (revision, elapsed) = (change.revision, elapsed.as_secs_f64());
                let line = describe(change)?;
                let line = format!("{elapsed:>9.3}s r{:<6} {line}", revision.0);
                Some((Some(revision), Cow::Owned(line)))
            }
        }
    }
}

impl Lines {
    fn push(&mut self, line: Line) {
        if self.newest.len() == LINES_MAX {
            let oldest = self.newest.pop_front();
            self.n_bytes -= oldest.map_or(0, |oldest| oldest.n_bytes());
            self.n_texts = self.n_texts.saturating_sub(1);
            self.n_dropped += 1;
        }
        self.n_bytes += line.n_bytes();
        self.newest.push_back(line);
        while self.n_bytes > BYTES_MAX
            && let Some(oldest) = self.newest.get_mut(self.n_texts)
        {
            self.n_bytes -= oldest.n_bytes();
            let text = oldest.text().map(|(revision, text)| (revision, text.into_owned()));
            let (revision, text) = text.unzip();
            *oldest = Line::Text { revision: revision.flatten(), text };
            self.n_texts += 1;
        }
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline").field("reached", &*self.inner.reached.borrow()).finish()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.inner.lines.lock();
        if lines.n_dropped > 0 {
            writeln!(f, "… {} earlier changes", lines.n_dropped)?;
        }
        lines.newest.iter().filter_map(Line::text).try_for_each(|(revision, line)| {
            match revision.and_then(&*self.inner.origin) {
                Some(origin) => writeln!(f, "{line}  [{} {}]", origin.controller, origin.request),
                None => writeln!(f, "{line}"),
            }
        })
    }
}

impl Timeline {
    pub(crate) fn new(
        origin: impl Fn(Revision) -> Option<Arc<Origin>> + Send + Sync + 'static,
    ) -> Self {
        let reached = watch::Sender::new(0);
        let origin = Box::new(origin);
        let inner = Inner { started: Instant::now(), origin, lines: Mutex::default(), reached };
        Self { inner: Arc::new(inner) }
    }

    /// Adds a custom line.
    pub fn note(&self, text: impl fmt::Display) {
        let elapsed = self.inner.started.elapsed().as_secs_f64();
        let text = Some(format!("{elapsed:>9.3}s        {text}"));
        self.inner.lines.lock().push(Line::Text { revision: None, text });
    }

    /// Notified after each change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.reached.subscribe()
    }

    /// Records a store's changes after a revision, without end. A feed that breaks is opened again
    /// where it broke.
    pub(crate) async fn follow(self, store: Arc<dyn Store>, after: Revision) {
        let mut seen = after;
        loop {
            match store.changes("/".into(), seen).await {
                Ok(mut feed) => {
                    while let Ok(batch) = feed.next().await {
                        self.record(&batch);
                        seen = batch.revision;
                    }
                }
                Err(StoreError::Compacted { oldest, .. }) => {
                    self.note(format_args!("the changes before r{} are lost", oldest.0));
                    seen = oldest;
                }
                // The store fails now and then.
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn record(&self, batch: &Batch) {
        for change in &batch.changes {
            let elapsed = self.inner.started.elapsed();
            self.inner.lines.lock().push(Line::Change { elapsed, change: change.clone() });
        }
        self.inner.reached.send_replace(batch.revision.0);
    }
}

/// Describes a change; `None` if the value is not an object.
fn describe(change: &Change) -> Option<String> {
    let tree = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let old = change.previous.as_ref().and_then(|entry| tree(&entry.value));
    let new = change.value.as_ref().and_then(|value| tree(value));
    let object = new.as_ref().or(old.as_ref())?;
    let kind = object["kind"].as_str()?;
    let name = object["metadata"]["name"].as_str()?;
    let name = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };
    Some(match (&old, &new) {
        (None, _) => match writer(None, object) {
            Some(writer) => format!("created  {name}  by {writer}"),
            None => format!("created  {name}"),
        },
        (Some(_), None) => format!("deleted  {name}"),
        (Some(old), Some(new)) => {
            let mut fields = Vec::new();
            differences(&mut String::new(), old, new, 0, &mut fields);
            let more = fields.len().saturating_sub(FIELDS_MAX);
            fields.truncate(FIELDS_MAX);
            if more > 0 {
                fields.push(format!("{more} more"));
            }
            let writer = writer(Some(old), new).map(|writer| format!("  by {writer}"));
            format!("updated  {name}{}: {}", writer.unwrap_or_default(), fields.join(", "))
        }
    })
}

/// The field manager whose entry is new.
fn writer<'a>(old: Option<&Value>, new: &'a Value) -> Option<&'a str> {
    let entries = |object: &Value| object["metadata"]["managedFields"].as_array().cloned();
    let before = old.and_then(entries).unwrap_or_default();
    let after = new["metadata"]["managedFields"].as_array()?;
    let entry = after.iter().rev().find(|entry| !before.contains(entry))?;
    entry["manager"].as_str()
}

/// Collects the fields in which two versions differ, with their values.
fn differences(path: &mut String, old: &Value, new: &Value, depth: usize, found: &mut Vec<String>) {
    if old == new || path == "metadata.managedFields" || path == "metadata.resourceVersion" {
        return;
    }
    let length = path.len();
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if depth < DEPTH_MAX => {
            let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
            for key in keys {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                let at = |tree: &serde_json::Map<String, Value>| {
                    tree.get(key).cloned().unwrap_or(Value::Null)
                };
                differences(path, &at(old), &at(new), depth + 1, found);
                path.truncate(length);
            }
        }
        // For conditions and similar lists, elements are matched by type.
        (Value::Array(old), Value::Array(new)) if depth < DEPTH_MAX && are_typed(old, new) => {
            let of = |list: &[Value], kind: &str| {
                list.iter().find(|item| item["type"] == *kind).cloned().unwrap_or(Value::Null)
            };
            let types = old.iter().chain(new).filter_map(|item| item["type"].as_str());
            let mut types: Vec<&str> = types.collect();
            types.sort_unstable();
            types.dedup();
            for kind in types {
                path.push_str(&format!("[{kind}]"));
                differences(path, &of(old, kind), &of(new, kind), depth + 1, found);
                path.truncate(length);
            }
        }
        _ => found.push(format!("{path} {} → {}", shown(old), shown(new))),
    }
}

fn are_typed(old: &[Value], new: &[Value]) -> bool {
    old.iter().chain(new).all(|item| item["type"].is_string())
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => return "nothing".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(VALUE_CHARS_MAX).collect();
    if chars.next().is_some() { start + "…" } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use setpoint_store::KeyValue;

    fn change(old: Option<Value>, new: Option<Value>) -> Change {
        let bytes = |value: Value| bytes::Bytes::from(value.to_string());
        Change {
            revision: Revision(7),
            key: "/registry/x".into(),
            value: new.map(bytes),
            previous: old.map(|value| KeyValue {
                key: "/registry/x".into(),
                value: bytes(value),
                created: Revision(1),
                modified: Revision(6),
            }),
        }
    }

    fn pod(status: &str, manager: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"namespace": "n", "name": "a", "managedFields": [{"manager": manager}]},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        })
    }

    #[test]
    fn line_has_the_changed_fields_and_the_writer() {
        let line = |old, new| describe(&change(old, new)).unwrap();
        assert_eq!(line(None, Some(pod("False", "kubectl"))), "created  Pod n/a  by kubectl");
        assert_eq!(
            line(Some(pod("False", "kubectl")), Some(pod("True", "node"))),
            "updated  Pod n/a  by node: status.conditions[Ready].status False → True",
        );
        assert_eq!(line(Some(pod("True", "node")), None), "deleted  Pod n/a");
    }

    #[test]
    fn line_names_a_few_fields_and_counts_the_rest() {
        let map = |n: u32| {
            let data: serde_json::Map<_, _> =
                (0..9).map(|key| (format!("k{key}"), json!(n))).collect();
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
        };
        let line = describe(&change(Some(map(1)), Some(map(2)))).unwrap();
        assert!(line.ends_with("data.k5 1 → 2, 3 more"), "{line}");
    }

    #[test]
    fn lines_are_the_same_if_their_objects_are_no_longer_held() {
        let lines = |n_bytes: usize| {
            let mut lines = Lines::default();
            for n in 0..40 {
                let data = json!({"n": n, "x": "x".repeat(n_bytes)});
                let map = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
                let change = change(None, Some(if n % 9 == 0 { json!(n) } else { map }));
                lines.push(Line::Change { elapsed: Duration::from_secs(n), change });
            }
            lines
        };
        let texts = |lines: &Lines| -> Vec<String> {
            let texts = lines.newest.iter().filter_map(Line::text);
            texts.map(|(revision, text)| format!("{revision:?} {text}")).collect()
        };
        let (small, large) = (lines(1), lines(1024 * 1024));
        assert_eq!((small.n_texts, texts(&small).len()), (0, 35));
        assert!((20..30).contains(&large.n_texts) && large.n_bytes <= BYTES_MAX);
        assert_eq!(texts(&small), texts(&large));
    }

    #[test]
    fn lines_that_are_dropped_are_not_counted() {
        let mut lines = Lines::default();
        for n in 0..=LINES_MAX + 30 {
            let change = change(None, Some(json!("x".repeat(16 * 1024))));
            lines.push(match n % 2 {
                0 => Line::Change { elapsed: Duration::ZERO, change },
                _ => Line::Text { revision: None, text: None },
            });
            assert!(lines.n_bytes <= BYTES_MAX);
        }
        assert_eq!(lines.n_bytes, lines.newest.iter().map(Line::n_bytes).sum::<usize>());
        assert_eq!((lines.newest.len(), lines.n_dropped), (LINES_MAX, 31));
    }

    #[test]
    fn non_object_has_no_line() {
        assert_eq!(describe(&change(None, Some(json!(3)))), None);
    }
}
