//! Writes lists from the bytes of their items, a slice at a time.
//!
//! # Theory
//!
//! A list consists of a head, its items and a tail. Each item is written by itself, so that only
//! single items become trees, and a large list need not be in memory to be sent: [`ListWriter`]
//! holds references to the stored objects and appends some of them per call, about a millisecond of
//! work.
//!
//! | form | an item |
//! |---|---|
//! | JSON | the stored bytes with the resourceVersion spliced in; for built-in kinds without `apiVersion` and `kind`, which follow from the list's kind |
//! | indented JSON | the same, indented inside two brackets |
//! | Table, metadata only | its row, or its metadata |
//! | YAML | the YAML of a list of this item alone, without the first line |
//! | protobuf | its message. All are made first, because the total length precedes them |
//! | CBOR | its map. The items are the last member, and their number precedes them |
//!
//! The envelopes of built-in kinds and custom resources differ in the order of their members, as on
//! the reference server.

use crate::body::BodyError;
use crate::filter::large::{LARGE_BYTES_MIN, LargeAnswers};
use crate::indent;
use crate::negotiate::{Encoding, MetaVersion, Transform};
use crate::respond::to_yaml;
use crate::table::{self, IncludeObject, Printer, printable};
use serde_json::json;
use setpoint_object::error::chain;
use setpoint_object::time::Timestamp;
use setpoint_registry::table::Columns;
use setpoint_registry::{List, Listed, Resource, SchemaLanguage};
use setpoint_schema::{cbor, protobuf};
use std::sync::Arc;

/// Bytes of items that are written at once: in each form about a millisecond of work.
///
/// From measurements of lists of 4 KB Pods: JSON is copied at some GB a second, YAML is written at
/// 10 MB a second, the others are in between.
const JSON_SLICE_BYTES: usize = 64 * 1024;
/// See [`JSON_SLICE_BYTES`].
const TREE_SLICE_BYTES: usize = 64 * 1024;
/// See [`JSON_SLICE_BYTES`].
const YAML_SLICE_BYTES: usize = 16 * 1024;
/// Placeholder for the items in an envelope that is converted to YAML.
const ITEMS_MARK: &str = "items-stand-here";
/// Objects that are read at once to sort rows.
const ROWS_AT_ONCE: usize = 64;
/// The number of open brackets around items.
const ITEM_DEPTH: usize = 2;

/// How a list is written.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) resource: Arc<Resource>,
    pub(crate) transform: Transform,
    pub(crate) encoding: Encoding,
    /// Indented, if it is JSON.
    pub(crate) pretty: bool,
    /// The contents of rows.
    pub(crate) include: IncludeObject,
    /// Whether the objects have the kind's printer.
    pub(crate) has_printer: bool,
    /// Whether they are Scales, which have a printer of their own.
    pub(crate) is_scale: bool,
    /// The present time, for ages.
    pub(crate) now: Timestamp,
}

impl Form {
    /// Converts the objects to Tables.
    pub(crate) fn printer(&self, version: MetaVersion) -> Printer<'_> {
        let columns = match (self.has_printer, self.is_scale) {
            (true, _) => printable(&self.resource.columns),
            (false, true) => Some(Columns::of_scale(!self.resource.has_go_type())),
            (false, false) => None,
        };
        let (kind, include) = (self.resource.kind, self.include);
        Printer { kind, columns, version, include, now: self.now }
    }

    /// Head and tail in JSON.
    fn envelope(&self, list: &List) -> (String, String) {
        let is_empty = list.items.is_empty();
        match self.transform {
            Transform::Table(version) => {
                let metadata = metadata(list, SchemaLanguage::GoTypes);
                let (head, tail) = self.printer(version).envelope(&metadata, true, is_empty);
                return (head, tail.to_owned());
            }
            Transform::PartialList(version) => {
                let metadata = metadata(list, SchemaLanguage::GoTypes);
                let (head, tail) = table::partial_envelope(&metadata, version, is_empty);
                return (head, tail.to_owned());
            }
            Transform::None | Transform::Partial(_) => {}
        }
        let row = &self.resource;
        let (kind, version) = (json!(&*row.list_kind), json!(row.group_version().to_string()));
        let language = row.schema.language();
        let metadata = metadata(list, language);
        if language == SchemaLanguage::OpenApi {
            let head = format!("{{\"apiVersion\":{version},\"items\":[");
            (head, format!("],\"kind\":{kind},\"metadata\":{metadata}}}"))
        } else {
            let head = format!(
                "{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{metadata},\"items\":["
            );
            (head, "]}".to_owned())
        }
    }

    /// Appends an item in JSON.
    fn push_json(&self, out: &mut Vec<u8>, item: &Listed) {
        let object = || {
            let mut object = Vec::with_capacity(item.room());
            item.push_to(&mut object);
            object
        };
        match self.transform {
            Transform::Table(version) => self.printer(version).row(out, &object()),
            Transform::PartialList(version) => {
                table::partial(out, &object(), self.resource.kind, version)
            }
            Transform::None | Transform::Partial(_) => match self.resource.schema.language() {
                SchemaLanguage::GoTypes => item.push_item_to(out),
                SchemaLanguage::OpenApi => item.push_to(out),
            },
        }
    }

    /// Appends an item in the list's form, with the separator before it.
    fn push(&self, out: &mut Vec<u8>, item: &Listed, is_first: bool) -> Result<(), BodyError> {
        match (self.encoding, self.pretty) {
            (Encoding::Cbor, _) => {
                let mut json = Vec::with_capacity(item.room());
                self.push_json(&mut json, item);
                let pushed = self.cbor().push_item(&json, out);
                pushed.map_err(|error| BodyError::Encode(error.to_string()))?;
            }
            (Encoding::Yaml, _) => {
                let mut json = Vec::with_capacity(item.room() + 16);
                json.extend_from_slice(b"{\"items\":[");
                self.push_json(&mut json, item);
                json.extend_from_slice(b"]}");
                let yaml = to_yaml(&json).map_err(BodyError::Encode)?;
                let (_, lines) = yaml.split_once('\n').unwrap_or_default();
                out.extend_from_slice(lines.as_bytes());
            }
            (_, true) => {
                let mut json = Vec::with_capacity(item.room());
                self.push_json(&mut json, item);
                if !is_first {
                    indent::push(out, b",", ITEM_DEPTH);
                }
                indent::push(out, &json, ITEM_DEPTH);
            }
            _ => {
                if !is_first {
                    out.push(b',');
                }
                self.push_json(out, item);
            }
        }
        Ok(())
    }

    /// Writes items in CBOR.
    fn cbor(&self) -> cbor::ListEncoder {
        let row = &self.resource;
        match self.transform {
            Transform::PartialList(version) => {
                cbor::ListEncoder::new(version.api_version(), table::PARTIAL_LIST)
            }
            _ => cbor::ListEncoder::new(&row.group_version().to_string(), &row.list_kind),
        }
    }

    /// The whole list in JSON; `None` if it is longer than `bytes_max`.
    pub(crate) fn json(&self, list: &List, bytes_max: usize) -> Option<Vec<u8>> {
        let (head, tail) = self.envelope(list);
        let mut out = head.into_bytes();
        for (i, item) in list.items.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            self.push_json(&mut out, item);
            if out.len() + tail.len() > bytes_max {
                return None;
            }
        }
        out.extend_from_slice(tail.as_bytes());
        Some(out)
    }

    /// Bytes of items per slice.
    fn slice_bytes(&self) -> usize {
        match (self.encoding, self.transform) {
            (Encoding::Yaml, _) => YAML_SLICE_BYTES,
            (Encoding::Json, Transform::None | Transform::PartialList(_)) => JSON_SLICE_BYTES,
            _ => TREE_SLICE_BYTES,
        }
    }

    /// Puts the items of a Table into the order of the kind's rows.
    async fn sort_rows(&self, list: &mut List) {
        let (Transform::Table(_), true) = (self.transform, self.has_printer) else { return };
        let Some(order) = self.resource.kind.row_order else { return };
        let mut rows = Vec::with_capacity(list.items.len());
        for item in std::mem::take(&mut list.items) {
            if rows.len() % ROWS_AT_ONCE == ROWS_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let object = serde_json::from_slice(&item.bytes()).unwrap_or_default();
            rows.push((order(&object), item));
        }
        // Stable: rows of the same number stay in the order of the list, which is by name.
        rows.sort_by_key(|(number, _)| *number);
        list.items = rows.into_iter().map(|(_, item)| item).collect();
    }

    /// Whether each item is decoded to a tree.
    fn makes_trees(&self) -> bool {
        self.transform.makes_trees(self.encoding)
    }
}

/// A list that is being written. It owns its data.
#[derive(Debug)]
pub(crate) struct ListWriter {
    form: Form,
    large: LargeAnswers,
    items: Items,
    head: Vec<u8>,
    tail: Vec<u8>,
    is_first: bool,
    is_done: bool,
}

#[derive(Debug)]
enum Items {
    Objects(std::vec::IntoIter<Listed>),
    /// Protobuf items, encoded, one buffer per slice.
    Encoded(std::vec::IntoIter<Vec<u8>>),
}

impl ListWriter {
    /// Starts a list. Waits only for protobuf, whose items are encoded first. Items without a
    /// protobuf form (as stored objects may have) are written in JSON instead.
    ///
    /// # Errors
    ///
    /// The envelope cannot be encoded.
    pub(crate) async fn new(
        mut form: Form,
        mut list: List,
        large: LargeAnswers,
    ) -> Result<Self, BodyError> {
        if form.encoding == Encoding::Protobuf {
            match Self::in_protobuf(&form, &list, &large).await {
                Ok(writer) => return Ok(writer),
                Err(error) => {
                    tracing::error!(
                        error = chain(&error),
                        "answer in JSON: the object has no protobuf form"
                    );
                    form.encoding = Encoding::Json;
                }
            }
        }
        form.sort_rows(&mut list).await;
        let (head, tail) = form.envelope(&list);
        let is_empty = list.items.is_empty();
        let (head, mut tail) = match (form.encoding, form.pretty) {
            (Encoding::Cbor, _) => {
                let made = form.cbor().head((head + &tail).as_bytes(), list.items.len());
                (made.map_err(|error| BodyError::Encode(error.to_string()))?, Vec::new())
            }
            (Encoding::Yaml, _) if is_empty => {
                let yaml = to_yaml((head + &tail).as_bytes()).map_err(BodyError::Encode)?;
                (yaml.into_bytes(), Vec::new())
            }
            (Encoding::Yaml, _) => yaml_envelope(&head, &tail)?,
            (_, true) if is_empty => (indent::indented((head + &tail).as_bytes()), Vec::new()),
            (_, true) => {
                let mut indented = (Vec::new(), Vec::new());
                indent::push(&mut indented.0, head.as_bytes(), 0);
                indent::push(&mut indented.1, tail.as_bytes(), ITEM_DEPTH);
                indented
            }
            _ => (head.into_bytes(), tail.into_bytes()),
        };
        if !form.pretty && !matches!(form.encoding, Encoding::Yaml | Encoding::Cbor) {
            tail.push(b'\n');
        }
        let items = Items::Objects(list.items.into_iter());
        Ok(Self { form, large, items, head, tail, is_first: true, is_done: false })
    }

    async fn in_protobuf(
        form: &Form,
        list: &List,
        large: &LargeAnswers,
    ) -> Result<Self, BodyError> {
        let failed = |error: protobuf::EncodeError| BodyError::Encode(error.to_string());
        let own_version = form.resource.group_version().to_string();
        let (api_version, kind) = match form.transform {
            Transform::PartialList(version) => (version.api_version(), table::PARTIAL_LIST),
            _ => (&*own_version, &*form.resource.list_kind),
        };
        let encoder = protobuf::ListEncoder::new(api_version, kind).map_err(failed)?;
        let slice_bytes = form.slice_bytes();
        let (mut slices, mut slice, mut object) = (Vec::new(), Vec::new(), Vec::new());
        for item in &list.items {
            if item.room() > LARGE_BYTES_MIN {
                let (encoder, item) = (encoder.clone(), item.clone());
                let encode = move || {
                    let (mut object, mut made) = (Vec::with_capacity(item.room()), Vec::new());
                    item.push_item_to(&mut object);
                    encoder.push_item(&object, &mut made).map(|()| made)
                };
                slices.push(std::mem::take(&mut slice));
                slices.push(large.run_blocking(encode).await?.map_err(failed)?);
                continue;
            }
            object.clear();
            // In a list, messages of built-in kinds have no type of their own.
            item.push_item_to(&mut object);
            encoder.push_item(&object, &mut slice).map_err(failed)?;
            if slice.len() >= slice_bytes {
                let next = Vec::with_capacity(slice.len());
                slices.push(std::mem::replace(&mut slice, next));
                tokio::task::yield_now().await;
            }
        }
        slices.push(slice);
        slices.retain(|slice| !slice.is_empty());
        let n_bytes = slices.iter().map(Vec::len).sum();
        let (head, tail) =
            encoder.around(&metadata(list, SchemaLanguage::GoTypes), n_bytes).map_err(failed)?;
        Ok(Self {
            form: form.clone(),
            large: large.clone(),
            items: Items::Encoded(slices.into_iter()),
            head,
            tail,
            is_first: true,
            is_done: false,
        })
    }

    /// The media type of the output.
    pub(crate) fn media_type(&self) -> &'static str {
        self.form.encoding.media_type()
    }

    /// Appends a slice; whether anything is left. Waits only for an item that is so large that it
    /// is written on a blocking thread.
    ///
    /// # Errors
    ///
    /// An item cannot be encoded.
    pub(crate) async fn push_slice(&mut self, out: &mut Vec<u8>) -> Result<bool, BodyError> {
        if self.is_done {
            return Ok(false);
        }
        out.append(&mut self.head);
        let (mut n_read, most) = (0, self.form.slice_bytes());
        while n_read < most {
            match &mut self.items {
                Items::Encoded(slices) => match slices.next() {
                    Some(mut slice) => {
                        n_read += slice.len();
                        if out.is_empty() { *out = slice } else { out.append(&mut slice) }
                    }
                    None => return Ok(self.finish(out)),
                },
                Items::Objects(items) => {
                    let Some(item) = items.next() else { return Ok(self.finish(out)) };
                    n_read += item.room();
                    let is_first = std::mem::replace(&mut self.is_first, false);
                    if item.room() > LARGE_BYTES_MIN && self.form.makes_trees() {
                        let form = self.form.clone();
                        let write = move || {
                            let mut written = Vec::new();
                            form.push(&mut written, &item, is_first).map(|()| written)
                        };
                        out.append(&mut self.large.run_blocking(write).await??);
                    } else {
                        self.form.push(out, &item, is_first)?;
                    }
                }
            }
        }
        Ok(true)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> bool {
        out.append(&mut self.tail);
        self.is_done = true;
        false
    }
}

/// An envelope in YAML, split at its items. For an empty list it is complete.
fn yaml_envelope(head: &str, tail: &str) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
    let json = format!("{head}\"{ITEMS_MARK}\"{tail}");
    let yaml = to_yaml(json.as_bytes()).map_err(BodyError::Encode)?;
    let cut = yaml.find(ITEMS_MARK).and_then(|mark| {
        let start = yaml[..mark].rfind('\n')? + 1;
        let end = mark + yaml[mark..].find('\n')? + 1;
        Some((start, end))
    });
    let Some((start, end)) = cut else {
        return Err(BodyError::Encode("an envelope without its items".to_owned()));
    };
    Ok((yaml.as_bytes()[..start].to_vec(), yaml.as_bytes()[end..].to_vec()))
}

/// The list's metadata. Of objects without a Go type: members in alphabetical order, `continue`
/// always present.
pub(crate) fn metadata(list: &List, language: SchemaLanguage) -> String {
    let is_sorted = language == SchemaLanguage::OpenApi;
    let token = (is_sorted || !list.continue_token.is_empty())
        .then(|| format!("\"continue\":{}", json!(list.continue_token)));
    let remaining = list.remaining.map(|n| format!("\"remainingItemCount\":{n}"));
    let revision = Some(format!("\"resourceVersion\":\"{}\"", list.revision));
    let shard = list
        .shard
        .as_ref()
        .map(|text| format!("\"shardInfo\":{{\"selector\":{}}}", json!(&**text)));
    let members = match is_sorted {
        true => [token, remaining, revision, shard],
        false => [revision, token, remaining, shard],
    };
    format!("{{{}}}", members.into_iter().flatten().collect::<Vec<_>>().join(","))
}
