//! Records of what one pass read and wrote.
//!
//! # Theory
//!
//! Every read and write through a pass's client is recorded here, by the pass itself and by tasks
//! it has spawned. The record has two uses. The [writes](Pass::end) are exact; the caches must
//! catch up with them. The [`Note`]s are for people, at most [`NOTES_MAX`] of them: further ones
//! are only counted. A repeated read or write with the same result counts up its note. The key,
//! start, notes and end of a pass share one allocation, which a later pass [reuses](Pass::renew).

mod cause;
mod outcome;
mod place;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;

use tokio::time::Instant;

use setpoint_object::Origin;

pub use self::{
    cause::Cause,
    outcome::{ERROR_BYTES_MAX, PassOutcome, ReconcileId},
};
pub(crate) use self::{
    outcome::{Began, cut},
    place::{CacheId, Place},
};
use crate::request::{Request, RequestKey};

/// The maximum number of different reads and writes recorded per pass: 32, as many as people read.
/// A note takes 96 bytes.
pub const NOTES_MAX: usize = 32;

/// The maximum number of writes of one resource in one namespace that a pass records individually:
/// 32. Beyond it, the pass waits for every cache of the resource. Of the objects that are gone, the
/// last are recorded: a cache that shows the last deletions shows the earlier ones.
pub(crate) const WRITES_MAX: usize = 32;

/// The record of one pass: start, reads, writes, end.
#[derive(Debug)]
pub(crate) struct Pass {
    began: Began,
    /// Notes are not needed; only writes are recorded.
    writes_only: bool,
    noted: Mutex<Noted>,
}

/// A pass with its key.
#[derive(Debug)]
pub(crate) struct KeyedPass<R> {
    pub(crate) controller: Arc<str>,
    pub(crate) key: R,
    pub(crate) pass: Pass,
}

/// A pass without the type of its key: the part that a client holds.
pub(crate) trait AnyPass: Send + Sync {
    /// The record of reads and writes.
    fn pass(&self) -> &Pass;

    /// The origin of the pass's requests. Made on demand: most passes send none.
    fn origin(&self) -> Origin;
}

impl<R: RequestKey> AnyPass for KeyedPass<R> {
    fn pass(&self) -> &Pass {
        &self.pass
    }

    fn origin(&self) -> Origin {
        let reconcile_id = self.pass.began.reconcile_id.to_string();
        Origin::new(self.controller.clone(), self.key.to_string(), reconcile_id)
    }
}

#[derive(Debug, Default)]
struct Noted {
    notes: SmallVec<[Note; 1]>,
    n_more: u32,
    written: Written,
    ended: Option<(Instant, PassOutcome)>,
}

/// Writes by cluster, resource and namespace: a cache of one namespace does not see the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written(pub(crate) BTreeMap<(CacheId, Arc<str>, Arc<str>), Writes>);

/// Writes of one resource in one namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writes {
    /// The newest resourceVersion written.
    pub(crate) newest: u64,
    /// Each write, for caches that hold only some objects; cleared once there are more than
    /// [`WRITES_MAX`].
    objects: Vec<WrittenObject>,
    has_more: bool,
    /// The last objects that were deleted.
    gone: VecDeque<GoneObject>,
}

/// An object that a cache is not to show after a deletion. The answer has no version to wait for.
#[derive(Debug, Clone)]
pub(crate) struct GoneObject {
    pub(crate) key: Request,
    pub(crate) uid: Arc<str>,
    /// It may be there at a later version: marked for deletion.
    pub(crate) up_to: Option<Arc<str>>,
}

/// An object after a write.
#[derive(Debug, Clone)]
struct WrittenObject {
    key: Request,
    version: u64,
    json: Bytes,
}

impl Writes {
    /// The last objects that were deleted.
    pub(crate) fn gone(&self) -> impl Iterator<Item = &GoneObject> {
        self.gone.iter()
    }

    /// The newest version that a cache of the matching objects will show, given the objects it
    /// holds now. A write after which an object no longer matches counts too: the object leaves the
    /// cache.
    pub(crate) fn newest_of(
        &self,
        matches: impl Fn(&[u8]) -> bool,
        holds: impl Fn(&Request) -> bool,
    ) -> Option<u64> {
        if self.has_more {
            return Some(self.newest);
        }
        let mut newest = None;
        let mut shown: Vec<&Request> = Vec::new();
        for WrittenObject { key, version, json } in &self.objects {
            if shown.contains(&key) || matches(json) || holds(key) {
                shown.push(key);
                newest = newest.max(Some(*version));
            }
        }
        newest
    }
}

/// A read or write of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The resource, with its group: `deployments.apps`; `deployments.apps of east` in another
    /// cluster.
    pub resource: Arc<str>,
    /// The object. For a list: the namespace alone, or nothing for all namespaces.
    pub object: Request,
    /// What kind of read or write.
    pub what: NoteKind,
    /// How often it was repeated.
    pub n_times: u32,
}

/// The kind of a [`Note`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// A read.
    Read(ReadFrom),
    /// A write.
    Write {
        /// `create`, `patch status of` …
        verb: &'static str,
        /// The object's version after it; zero if unknown or not a number.
        resource_version: u64,
        /// The result.
        outcome: WriteOutcome,
    },
}

/// Where a read was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadFrom {
    /// The cache.
    Cache,
    /// The server.
    Server,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteOutcome {
    /// The server confirmed it.
    Done,
    /// The server refused it with this HTTP code.
    Refused(u16),
    /// It was not sent.
    NotSent,
    /// No answer, or an unreadable one: it may have been done.
    Unknown,
}

impl Pass {
    /// A record of a pass that starts; see [`Pass::writes_only`].
    pub(crate) fn new(began: Began, writes_only: bool) -> Self {
        Self { began, writes_only, noted: Mutex::default() }
    }

    /// Resets the record for a new pass, as [`new`](Self::new).
    pub(crate) fn renew(&mut self, began: Began, writes_only: bool) {
        self.began = began;
        self.writes_only = writes_only;
        let noted = self.noted.get_mut();
        if noted.notes.spilled() {
            noted.notes = SmallVec::new();
        }
        noted.notes.clear();
        noted.n_more = 0;
        noted.written.0.clear();
        noted.ended = None;
    }

    /// The start of the pass.
    pub(crate) fn began(&self) -> &Began {
        &self.began
    }

    /// Records the end of the pass; returns the newest versions that it wrote. Later writes come
    /// from tasks that the pass left running.
    pub(crate) fn end(&self, at: Instant, outcome: PassOutcome) -> Written {
        let mut noted = self.noted.lock();
        if !self.writes_only {
            noted.ended = Some((at, outcome));
        }
        std::mem::take(&mut noted.written)
    }

    /// Records a read of one object.
    pub(crate) fn note_read(&self, place: Place<'_>, key: &Request, from: ReadFrom) {
        if !self.writes_only {
            self.noted.lock().note(place, key, NoteKind::Read(from));
        }
    }

    /// Records a list of one namespace, or of all.
    pub(crate) fn note_list(&self, place: Place<'_>, namespace: Option<&str>, from: ReadFrom) {
        if !self.writes_only {
            let namespace = namespace.map(Arc::from).unwrap_or_default();
            let all = Request { namespace, name: Arc::default() };
            self.noted.lock().note(place, &all, NoteKind::Read(from));
        }
    }

    /// Records a write that ended; `written` is the resourceVersion in the server's answer, and the
    /// answer.
    pub(crate) fn note_written(
        &self,
        place: Place<'_>,
        key: &Request,
        verb: &'static str,
        written: Option<(&str, &Bytes)>,
        outcome: WriteOutcome,
    ) {
        // Versions that are not numbers cannot be waited for.
        let written = written.and_then(|(version, json)| Some((version.parse().ok()?, json)));
        let version: Option<u64> = written.map(|(version, _)| version);
        let mut noted = self.noted.lock();
        if let Some((version, json)) = written {
            noted.written.add(place, key, version, json);
        }
        if !self.writes_only {
            let resource_version = version.unwrap_or(0);
            noted.note(place, key, NoteKind::Write { verb, resource_version, outcome });
        }
    }

    /// Records that a write left no object with this uid; with `up_to`: none at this version or an
    /// earlier one. Ignored if the uid is empty: then no cache has the object.
    pub(crate) fn note_gone(
        &self,
        place: Place<'_>,
        key: &Request,
        uid: Arc<str>,
        up_to: Option<Arc<str>>,
    ) {
        if !uid.is_empty() {
            let gone = GoneObject { key: key.clone(), uid, up_to };
            self.noted.lock().written.add_gone(place, gone);
        }
    }

    /// The notes in order of the first of each, how many more there were, and the end of the pass,
    /// if it has ended.
    pub(crate) fn recorded(&self) -> (Vec<Note>, u32, Option<(Instant, PassOutcome)>) {
        let noted = self.noted.lock();
        (noted.notes.to_vec(), noted.n_more, noted.ended.clone())
    }
}

impl Noted {
    fn note(&mut self, place: Place<'_>, object: &Request, what: NoteKind) {
        if self.notes.len() >= NOTES_MAX {
            self.n_more = self.n_more.saturating_add(1);
            return;
        }
        let elsewhere;
        let resource = match place.cluster {
            None => place.resource,
            Some(cluster) => {
                elsewhere = Arc::from(format!("{} of {cluster}", place.resource));
                &elsewhere
            }
        };
        let is_again = |note: &&mut Note| {
            note.what == what
                && note.object == *object
                && (Arc::ptr_eq(&note.resource, resource) || note.resource == *resource)
        };
        match self.notes.iter_mut().find(is_again) {
            Some(note) => note.n_times = note.n_times.saturating_add(1),
            None => self.notes.push(Note {
                resource: resource.clone(),
                object: object.clone(),
                what,
                n_times: 1,
            }),
        }
    }
}

impl Written {
    fn at(&mut self, place: Place<'_>, namespace: &Arc<str>) -> &mut Writes {
        self.0.entry((place.cache, place.resource.clone(), namespace.clone())).or_default()
    }

    fn add_gone(&mut self, place: Place<'_>, gone: GoneObject) {
        let writes = self.at(place, &gone.key.namespace);
        if writes.gone.len() >= WRITES_MAX {
            writes.gone.pop_front();
        }
        writes.gone.push_back(gone);
    }

    fn add(&mut self, place: Place<'_>, key: &Request, version: u64, json: &Bytes) {
        let writes = self.at(place, &key.namespace);
        writes.newest = version.max(writes.newest);
        if writes.objects.len() >= WRITES_MAX {
            writes.has_more = true;
            writes.objects = Vec::new();
        }
        if !writes.has_more {
            let (key, json) = (key.clone(), json.clone());
            writes.objects.push(WrittenObject { key, version, json });
        }
    }
}

/// `read pods default/a from the cache`, `patch status of pods default/a (version 7)`.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, object, what, n_times } = self;
        match what {
            NoteKind::Read(_) if object.name.is_empty() => write!(f, "listed {resource}")?,
            NoteKind::Read(_) => write!(f, "read {resource}")?,
            NoteKind::Write { verb, .. } => write!(f, "{verb} {resource}")?,
        }
        match (object.namespace_opt(), &*object.name) {
            (None, "") => {}
            (Some(namespace), "") => write!(f, " in {namespace}")?,
            _ => write!(f, " {object}")?,
        }
        match what {
            NoteKind::Read(ReadFrom::Cache) => f.write_str(" from the cache")?,
            NoteKind::Read(ReadFrom::Server) => f.write_str(" from the server")?,
            NoteKind::Write { outcome: WriteOutcome::Refused(code), .. } => {
                write!(f, ": refused with {code}")?;
            }
            NoteKind::Write { outcome: WriteOutcome::NotSent, .. } => f.write_str(": not sent")?,
            NoteKind::Write { outcome: WriteOutcome::Unknown, .. } => {
                f.write_str(": no answer, it may have been done")?;
            }
            NoteKind::Write { resource_version: 0, .. } => {}
            NoteKind::Write { resource_version, .. } => write!(f, ": now {resource_version}")?,
        }
        if *n_times > 1 {
            write!(f, ", {n_times} times")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(writes_only: bool) -> Pass {
        Pass::new(Began::now(Cause::External), writes_only)
    }

    fn place(resource: &Arc<str>) -> Place<'_> {
        Place { cache: CacheId::OWN, resource, cluster: None }
    }

    fn notes(pass: &Pass) -> (Vec<Note>, u32) {
        let (notes, n_more, _) = pass.recorded();
        (notes, n_more)
    }

    fn end(pass: &Pass) -> Written {
        pass.end(Instant::now(), PassOutcome::Success)
    }

    fn written(pass: &Pass, version: &str) {
        let key = Request::new("default", "a");
        let written = Some((version, &Bytes::new()));
        pass.note_written(place(&"pods".into()), &key, "update", written, WriteOutcome::Done);
    }

    #[test]
    fn record_of_a_pass_is_as_small_as_documented() {
        // Plus the two counts of its `Arc`, the slot in the ring, and a key of some fifty bytes.
        let (counts, slot, key) = (16, 24, 50);
        let pass = size_of::<KeyedPass<Request>>();
        assert!(pass + counts + slot + key <= 450, "{pass}");
        assert!(size_of::<Note>() <= 104, "{}", size_of::<Note>());
    }

    #[test]
    fn newest_written_version_of_each_resource_is_recorded() {
        for pass in [pass(false), pass(true)] {
            written(&pass, "7");
            written(&pass, "5");
            written(&pass, "opaque");
            let key = Request::cluster("n");
            pass.note_written(place(&"nodes".into()), &key, "delete", None, WriteOutcome::Done);
            let other = Request::new("other", "a");
            let version = Some(("6", &Bytes::new()));
            pass.note_written(place(&"pods".into()), &other, "update", version, WriteOutcome::Done);
            let of = |namespace: &str| (CacheId::OWN, "pods".into(), namespace.into());
            let newest = end(&pass).0.into_iter().map(|(of, writes)| (of, writes.newest));
            assert!(newest.eq([(of("default"), 7), (of("other"), 6)]));
        }
    }

    #[test]
    fn repeated_notes_are_counted_and_notes_beyond_the_limit_too() {
        let pass = pass(false);
        let read = |n: usize| {
            let key = Request::new("default", n.to_string());
            pass.note_read(place(&"pods".into()), &key, ReadFrom::Cache);
        };
        read(0);
        read(0);
        (1..NOTES_MAX + 3).for_each(read);
        let (texts, n_more) = notes(&pass);
        assert_eq!((texts.len(), n_more), (NOTES_MAX, 3));
        assert_eq!(texts[0].to_string(), "read pods default/0 from the cache, 2 times");
        // Writes are recorded even when no more notes are.
        written(&pass, "9");
        assert!(end(&pass).0.into_values().map(|writes| writes.newest).eq([9]));
    }

    #[test]
    fn cache_shows_writes_of_objects_that_match_or_that_it_holds() {
        let write = |written: &mut Written, name: &str, version: u64, json: &'static str| {
            let key = Request::new("default", name);
            written.add(place(&"pods".into()), &key, version, &Bytes::from_static(json.as_bytes()));
        };
        let newest = |written: &Written, held: &[&str]| {
            let writes = &written.0[&(CacheId::OWN, "pods".into(), "default".into())];
            writes.newest_of(|json| json == b"yes", |key| held.contains(&&*key.name))
        };
        let mut written = Written::default();
        write(&mut written, "a", 5, "no");
        assert_eq!(newest(&written, &[]), None);
        assert_eq!(newest(&written, &["a"]), Some(5), "it leaves the cache");
        write(&mut written, "b", 6, "yes");
        write(&mut written, "c", 7, "no");
        assert_eq!(newest(&written, &[]), Some(6));
        write(&mut written, "b", 8, "no");
        assert_eq!(newest(&written, &[]), Some(8), "it enters and leaves the cache");
        (0..WRITES_MAX as u64).for_each(|n| write(&mut written, "c", 9 + n, "no"));
        assert_eq!(
            newest(&written, &[]),
            Some(8 + WRITES_MAX as u64),
            "individual writes are no longer recorded"
        );
    }

    #[test]
    fn pass_that_records_only_writes_has_no_notes() {
        let pass = pass(true);
        pass.note_list(place(&"pods".into()), None, ReadFrom::Cache);
        written(&pass, "1");
        assert_eq!(notes(&pass), (Vec::new(), 0));
    }

    #[test]
    fn notes_display_as_sentences() {
        let pass = pass(false);
        let key = Request::new("default", "a");
        let pods = "pods".into();
        pass.note_list(place(&pods), Some("default"), ReadFrom::Cache);
        pass.note_list(place(&pods), None, ReadFrom::Server);
        written(&pass, "7");
        for outcome in [WriteOutcome::Refused(409), WriteOutcome::Unknown, WriteOutcome::NotSent] {
            pass.note_written(place(&pods), &key, "patch status of", None, outcome);
        }
        let texts: Vec<_> = notes(&pass).0.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "listed pods in default from the cache",
                "listed pods from the server",
                "update pods default/a: now 7",
                "patch status of pods default/a: refused with 409",
                "patch status of pods default/a: no answer, it may have been done",
                "patch status of pods default/a: not sent",
            ]
        );
    }
}
