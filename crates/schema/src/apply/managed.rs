//! `metadata.managedFields`: who owns what.

use super::Manager;
use super::fieldset::FieldSet;
use super::stored::{Fields, Read, Stored};
use serde_json::{Map, Value};
use setpoint_object::encode::{push, push_text};
use setpoint_object::time::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// The most Update entries an object keeps; older ones are united. 10, as the reference.
pub const UPDATE_ENTRIES_MAX: usize = 10;
/// The manager that owns what was there before tracking began.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager that old Update entries are united under.
pub const ANCIENT_CHANGES: &str = "ancient-changes";

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry. Its identity is manager, operation and subresource, for updates the version too.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    pub(super) manager: Cow<'a, str>,
    pub(super) operation: Operation,
    pub(super) api_version: Cow<'a, str>,
    pub(super) subresource: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) set: FieldSet<'a>,
    /// The set as it is stored: it has not been read, because nothing can happen to it
    /// ([`decode_touched`]).
    pub(super) unread: Option<Fields<'a>>,
    /// The entry as it was read, while nothing in it has changed: written back without being
    /// written again.
    pub(super) raw: Option<Raw<'a>>,
}

/// An entry of a list that was read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    /// With its place in the list.
    Tree(usize, &'a Value),
    Text(&'a str),
}

impl<'a> Entry<'a> {
    /// Of a write by this manager, without a time.
    pub(super) fn new(manager: &Manager<'a>, operation: Operation, set: FieldSet<'a>) -> Self {
        Self {
            manager: manager.name.into(),
            operation,
            api_version: manager.api_version.into(),
            subresource: manager.subresource.into(),
            time: None,
            set,
            unread: None,
            raw: None,
        }
    }
}

impl Entry<'_> {
    /// Whether it owns nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_none() && self.set.is_empty()
    }

    /// Takes these fields away.
    pub(super) fn lose(&mut self, gone: &FieldSet<'_>) {
        if self.set.meets(gone) {
            self.set.subtract(gone);
            self.raw = None;
        }
    }

    /// Whether this is the entry that a write by this manager goes to.
    pub(super) fn belongs_to(
        &self,
        operation: Operation,
        manager: &str,
        api_version: &str,
        subresource: &str,
    ) -> bool {
        self.operation == operation
            && self.manager == manager
            && self.subresource == subresource
            && (operation == Operation::Apply || self.api_version == api_version)
    }

    /// Whether an update by this manager, under this name, goes to it.
    pub(super) fn is_updated_by(&self, manager: &Manager<'_>, name: &str) -> bool {
        self.belongs_to(Operation::Update, name, manager.api_version, manager.subresource)
    }

    fn seconds(&self) -> u64 {
        let time = self.time.as_deref().and_then(Timestamp::parse);
        time.map_or(0, |time| time.0.as_secs())
    }

    /// The entry's identity as the reference spells it: conflicts are sorted by it.
    pub(super) fn identity(&self) -> String {
        let mut text = String::from("{");
        let mut member = |name: &str, value: &str| {
            if !value.is_empty() {
                let comma = if text.len() > 1 { "," } else { "" };
                let _ = write!(text, "{comma}\"{name}\":{}", Value::from(value));
            }
        };
        member("manager", &self.manager);
        member("operation", self.operation.as_str());
        if self.operation == Operation::Update {
            member("apiVersion", &self.api_version);
        }
        member("subresource", &self.subresource);
        text.push('}');
        text
    }
}

/// `metadata.managedFields` of an object.
pub(super) fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Takes `metadata.managedFields` out of an object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Whether a client resets the tracking: by an empty list, or one empty entry.
pub(super) fn is_reset(managed: &Value) -> bool {
    match managed.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(|entry| {
            entry.values().all(|v| v.is_null() || v.as_str().is_some_and(str::is_empty))
        }),
        _ => false,
    }
}

/// Reads entries; of two with one identity the later counts.
///
/// # Errors
/// An entry that is malformed, in the reference's words.
pub(super) fn decode(stored: Stored<'_>) -> Result<Vec<Entry<'_>>, String> {
    decode_if(stored.read()?, |_, _| true)
}

/// Reads stored entries for a write that changes and removes these fields, and adds the changed
/// ones to those of the entry that `is_own` recognizes. That one's set is read unless it has them:
/// most who write again change what they wrote before. The sets of the others are read only if
/// they have fields in a top-level member that changes: most writes to `/status` touch no field of
/// those who wrote `spec`.
///
/// # Errors
/// An entry that is malformed, in the reference's words.
pub(super) fn decode_touched<'a>(
    stored: Stored<'a>,
    (changed, removed): (&FieldSet<'_>, &FieldSet<'_>),
    is_own: impl Fn(&Entry<'_>) -> bool,
) -> Result<Vec<Entry<'a>>, String> {
    let read = stored.read()?;
    // More are united, with all their fields.
    let are_few = read.len() < UPDATE_ENTRIES_MAX;
    let is_apart = |step: &str| {
        let name = step.strip_prefix("f:");
        name.is_some_and(|name| [changed, removed].iter().all(|set| set.field(name).is_none()))
    };
    decode_if(read, |entry, fields| match is_own(entry) {
        _ if !are_few => true,
        true => !removed.is_empty() || !fields.have(changed),
        false => !fields.all_steps(is_apart),
    })
}

/// Reads entries, and the sets of those that `reads` wants.
fn decode_if<'a>(
    read: Vec<Read<'a>>,
    reads: impl Fn(&Entry<'_>, &Fields<'_>) -> bool,
) -> Result<Vec<Entry<'a>>, String> {
    let mut entries: Vec<Entry<'_>> = Vec::with_capacity(read.len());
    // An object holds one entry of a manager for one purpose.
    let mut places = HashMap::with_capacity(read.len());
    for (at, read) in read.into_iter().enumerate() {
        let operation = match &*read.operation {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if read.api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match &*read.fields_type {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => {
                return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}"));
            }
        }
        let mut entry = Entry {
            manager: read.manager,
            operation,
            api_version: read.api_version,
            subresource: read.subresource,
            time: read.time,
            set: FieldSet::new(),
            unread: None,
            raw: Some(read.raw),
        };
        match read.fields {
            None => {}
            Some(fields) if reads(&entry, &fields) => {
                let set = fields.set();
                entry.set =
                    set.map_err(|error| format!("error decoding versioned set: {error}"))?;
            }
            unread => entry.unread = unread,
        }
        let version = match operation {
            Operation::Update => entry.api_version.clone(),
            Operation::Apply => Cow::Borrowed(""),
        };
        let identity = (operation, entry.manager.clone(), version, entry.subresource.clone());
        let place = *places.entry(identity).or_insert(entries.len());
        match entries.get_mut(place) {
            Some(earlier) => *earlier = entry,
            None => entries.push(entry),
        }
    }
    Ok(entries)
}

/// Writes entries in the order the API shows them; `None` when there is none.
pub(super) fn encode(entries: Vec<Entry<'_>>) -> Option<Value> {
    encode_with(entries, None)
}

/// The same. `copy`: of the list from which they were read, if there is one whose values may be
/// taken.
pub(super) fn encode_with(entries: Vec<Entry<'_>>, mut copy: Option<Value>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    let mut copies = copy.as_mut().and_then(Value::as_array_mut);
    let mut written = |entry: &Entry<'_>| match entry.raw {
        Some(Raw::Tree(at, value)) => match copies.as_mut().and_then(|copies| copies.get_mut(at)) {
            Some(copy) => copy.take(),
            None => value.clone(),
        },
        Some(Raw::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
        None => encode_entry(entry),
    };
    Some(Value::Array(sorted(&entries).map(&mut written).collect()))
}

/// The same as text, with members in declared order or, for custom objects, sorted.
pub(super) fn encode_text(entries: Vec<Entry<'_>>, is_sorted: bool) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(1024);
    for entry in sorted(&entries) {
        out.push(if out.is_empty() { b'[' } else { b',' });
        match entry.raw {
            Some(Raw::Text(text)) => out.extend_from_slice(text.as_bytes()),
            Some(Raw::Tree(_, value)) => push(&mut out, value),
            None => push_entry(&mut out, entry, is_sorted, |out| match entry.unread {
                Some(fields) => fields.push(out),
                None => entry.set.push_wire(out, is_sorted),
            }),
        }
    }
    out.push(b']');
    Some(into_text(out))
}

/// The text of one entry, for whose fields `push_fields` appends FieldsV1 and returns whether there
/// is any.
pub(super) fn encode_created(
    entry: &Entry<'_>,
    is_sorted: bool,
    push_fields: impl FnOnce(&mut Vec<u8>) -> bool,
) -> Option<String> {
    let mut out = Vec::with_capacity(1024);
    let mut is_any = false;
    out.push(b'[');
    push_entry(&mut out, entry, is_sorted, |out| is_any = push_fields(out));
    out.push(b']');
    is_any.then(|| into_text(out))
}

fn into_text(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into())
}

/// The entries in the order in which the API shows them.
fn sorted<'e, 'a>(entries: &'e [Entry<'a>]) -> impl Iterator<Item = &'e Entry<'a>> {
    let is_one = entries.len() == 1;
    let seconds = |entry: &Entry<'_>| if is_one { 0 } else { entry.seconds() };
    let mut sorted: Vec<_> = entries.iter().map(|entry| (seconds(entry), entry)).collect();
    sorted.sort_by(|(a_seconds, a), (b_seconds, b)| {
        (a.operation, a_seconds)
            .cmp(&(b.operation, b_seconds))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    sorted.into_iter().map(|(_, entry)| entry)
}

/// Appends an entry, for whose fields `push_fields` appends FieldsV1.
fn push_entry(
    out: &mut Vec<u8>,
    entry: &Entry<'_>,
    is_sorted: bool,
    push_fields: impl FnOnce(&mut Vec<u8>),
) {
    // In declared order; the fields are no text.
    let mut members = [
        ("manager", Some(&*entry.manager)),
        ("operation", Some(entry.operation.as_str())),
        ("apiVersion", Some(&*entry.api_version)),
        ("time", Some(entry.time.as_deref().unwrap_or_default())),
        ("fieldsType", Some("FieldsV1")),
        ("fieldsV1", None),
        ("subresource", Some(&*entry.subresource)),
    ];
    if is_sorted {
        members.sort_unstable_by_key(|(name, _)| *name);
    }
    let mut push_fields = Some(push_fields);
    let given = members.into_iter().filter(|(_, text)| *text != Some(""));
    for (at, (name, text)) in given.enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        push_text(out, name);
        out.push(b':');
        match text {
            Some(text) => push_text(out, text),
            None => push_fields.take().into_iter().for_each(|push| push(out)),
        }
    }
    out.push(b'}');
}

fn encode_entry(entry: &Entry<'_>) -> Value {
    let mut map = Map::new();
    let mut text = |name: &str, value: &str| {
        map.insert(name.to_owned(), Value::from(value));
    };
    if !entry.manager.is_empty() {
        text("manager", &entry.manager);
    }
    text("operation", entry.operation.as_str());
    text("apiVersion", &entry.api_version);
    if let Some(time) = &entry.time {
        text("time", time);
    }
    text("fieldsType", "FieldsV1");
    if !entry.subresource.is_empty() {
        text("subresource", &entry.subresource);
    }
    let fields = entry.unread.map_or_else(|| entry.set.to_wire(), Fields::to_tree);
    map.insert("fieldsV1".to_owned(), fields);
    Value::Object(map)
}

/// Puts entries into an object; without entries it has no such member.
pub(super) fn put(object: &mut Value, entries: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match entries {
        Some(entries) => {
            let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(metadata) = metadata {
                metadata.insert("managedFields".to_owned(), entries);
            }
        }
        None => {
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.remove("managedFields");
            }
        }
    }
}

/// Unites the oldest Update entries, version by version, until [`UPDATE_ENTRIES_MAX`] remain.
pub(super) fn cap(entries: &mut Vec<Entry<'_>>) {
    let mut updates: Vec<usize> =
        (0..entries.len()).filter(|at| entries[*at].operation == Operation::Update).collect();
    let mut n_updates = updates.len();
    if n_updates <= UPDATE_ENTRIES_MAX {
        return;
    }
    updates.sort_by_cached_key(|at| (entries[*at].seconds(), entries[*at].identity()));
    // Where each version's entries are gathered, and their sets.
    let mut buckets: BTreeMap<String, (usize, Vec<FieldSet<'_>>)> = BTreeMap::new();
    let mut gone = vec![false; entries.len()];
    for at in updates {
        if n_updates <= UPDATE_ENTRIES_MAX {
            break;
        }
        let version = entries[at].api_version.to_string();
        let Some((into, sets)) = buckets.get_mut(&version) else {
            // The others are merged into the bucket of an earlier round, if there is one.
            buckets.insert(version, (at, Vec::new()));
            continue;
        };
        sets.push(std::mem::take(&mut entries[at].set));
        entries[*into].time = entries[at].time.take();
        gone[at] = true;
        n_updates -= 1;
    }
    for (into, mut sets) in buckets.into_values().filter(|(_, sets)| !sets.is_empty()) {
        let gathered = &mut entries[into];
        gathered.raw = None;
        sets.push(std::mem::take(&mut gathered.set));
        gathered.set = FieldSet::union_of(sets);
        gathered.manager = Cow::Borrowed(ANCIENT_CHANGES);
        gathered.subresource = Cow::Borrowed("");
    }
    let mut gone = gone.into_iter();
    entries.retain(|_| !gone.next().unwrap_or(false));
}
