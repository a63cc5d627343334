//! `metadata.managedFields`: who owns what.

use super::Manager;
use super::fieldset::FieldSet;
use serde_json::{Map, Value};
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
    /// The set has not been read, because nothing can happen to it ([`decode_touched`]).
    pub(super) unread: bool,
    /// The entry as it was read, while nothing in it has changed: written back without being
    /// written again.
    pub(super) raw: Option<Raw<'a>>,
}

/// An entry of a list that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    /// Its place in the list.
    at: usize,
    value: &'a Value,
}

impl Entry<'_> {
    /// Whether it owns nothing.
    pub(super) fn is_empty(&self) -> bool {
        !self.unread && self.set.is_empty()
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

/// The versions of the entries of a list.
pub(super) fn versions(managed: &Value) -> impl Iterator<Item = &str> {
    let entries = managed.as_array().map_or(&[][..], Vec::as_slice).iter();
    entries.filter_map(|entry| entry.get("apiVersion").and_then(Value::as_str))
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
pub(super) fn decode(managed: Option<&Value>) -> Result<Vec<Entry<'_>>, String> {
    decode_if(managed, |_, _| true)
}

/// Reads stored entries for a write that changes these fields, and maybe adds to those of the entry
/// that `is_own` recognizes. The sets of the others are read only if they have fields in a
/// top-level member that changes: most writes to `/status` touch no field of those who wrote
/// `spec`.
///
/// # Errors
/// An entry that is malformed, in the reference's words.
pub(super) fn decode_touched<'a>(
    managed: Option<&'a Value>,
    changed: [&FieldSet<'_>; 2],
    is_own: impl Fn(&Entry<'_>) -> bool,
) -> Result<Vec<Entry<'a>>, String> {
    // More are united, with all their fields.
    let are_few = managed.and_then(Value::as_array).is_some_and(|l| l.len() < UPDATE_ENTRIES_MAX);
    let is_apart = |step: &str| {
        let name = step.strip_prefix("f:");
        name.is_some_and(|name| changed.iter().all(|set| set.field(name).is_none()))
    };
    decode_if(managed, |entry, fields| {
        let apart = fields
            .as_object()
            .is_some_and(|fields| !fields.is_empty() && fields.keys().all(|step| is_apart(step)));
        !apart || !are_few || is_own(entry)
    })
}

/// Reads entries, and the sets of those that `reads` wants.
fn decode_if(
    managed: Option<&Value>,
    reads: impl Fn(&Entry<'_>, &Value) -> bool,
) -> Result<Vec<Entry<'_>>, String> {
    let list = match managed {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err("managedFields must be a list".to_owned()),
    };
    let mut entries: Vec<Entry<'_>> = Vec::with_capacity(list.len());
    // An object holds one entry of a manager for one purpose.
    let mut places = HashMap::with_capacity(list.len());
    for (at, raw) in list.iter().enumerate() {
        let text = |name: &str| raw.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => {
                return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}"));
            }
        }
        let mut entry = Entry {
            manager: text("manager").into(),
            operation,
            api_version: api_version.into(),
            subresource: text("subresource").into(),
            time: raw.get("time").and_then(Value::as_str).map(Cow::Borrowed),
            set: FieldSet::new(),
            unread: false,
            raw: Some(Raw { at, value: raw }),
        };
        match raw.get("fieldsV1") {
            None | Some(Value::Null) => {}
            Some(fields) if reads(&entry, fields) => {
                entry.set = FieldSet::from_wire(fields)
                    .map_err(|error| format!("error decoding versioned set: {error}"))?;
            }
            Some(_) => entry.unread = true,
        }
        let version = if operation == Operation::Update { api_version } else { "" };
        let identity = (operation, text("manager"), version, text("subresource"));
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
pub(super) fn encode_with(mut entries: Vec<Entry<'_>>, mut copy: Option<Value>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|a, b| {
        let key = |e: &Entry<'_>| (e.operation, e.seconds());
        key(a)
            .cmp(&key(b))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    let mut copies = copy.as_mut().and_then(Value::as_array_mut);
    let mut written = |entry: &Entry<'_>| match entry.raw {
        Some(raw) => match copies.as_mut().and_then(|copies| copies.get_mut(raw.at)) {
            Some(copy) => copy.take(),
            None => raw.value.clone(),
        },
        None => encode_entry(entry),
    };
    Some(Value::Array(entries.iter().map(&mut written).collect()))
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
    map.insert("fieldsV1".to_owned(), entry.set.to_wire());
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
