//! `metadata.managedFields` as it is read: a tree within its object, or text beside it.

use super::fieldset::FieldSet;
use super::managed::Raw;
use super::wire::{self, WireError};
use serde_json::Value;
use setpoint_object::encode;
use setpoint_object::members::{self, Member};
use std::borrow::Cow;

/// The entries of an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stored<'a> {
    Tree(Option<&'a Value>),
    /// A list of entries, each as the server writes it.
    Text(Option<&'a str>),
}

/// The members of an entry; texts that it lacks are empty.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) manager: Cow<'a, str>,
    pub(super) operation: Cow<'a, str>,
    pub(super) api_version: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) fields_type: Cow<'a, str>,
    pub(super) fields: Option<Fields<'a>>,
    pub(super) subresource: Cow<'a, str>,
    pub(super) raw: Raw<'a>,
}

/// FieldsV1, not read yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fields<'a> {
    Tree(&'a Value),
    Text(&'a str),
}

impl<'a> Stored<'a> {
    /// The entries.
    ///
    /// # Errors
    /// Something else than a list of entries.
    pub(super) fn read(self) -> Result<Vec<Read<'a>>, String> {
        match self {
            Self::Tree(None | Some(Value::Null)) | Self::Text(None) => Ok(Vec::new()),
            Self::Tree(Some(Value::Array(list))) => {
                Ok(list.iter().enumerate().map(|(at, entry)| Read::of_tree(at, entry)).collect())
            }
            Self::Tree(Some(_)) => Err("managedFields must be a list".to_owned()),
            Self::Text(Some(list)) => members::elements(list.as_bytes())
                .map(|entry| Read::of_text(&list[entry]))
                .collect(),
        }
    }

    /// The versions of the entries, as far as they can be read.
    pub(super) fn versions(self) -> Vec<Cow<'a, str>> {
        self.read().into_iter().flatten().map(|entry| entry.api_version).collect()
    }
}

impl<'a> Read<'a> {
    fn of_tree(at: usize, entry: &'a Value) -> Self {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).map(Cow::Borrowed);
        let fields = entry.get("fieldsV1").filter(|fields| !fields.is_null());
        Self {
            manager: text("manager").unwrap_or_default(),
            operation: text("operation").unwrap_or_default(),
            api_version: text("apiVersion").unwrap_or_default(),
            time: text("time"),
            fields_type: text("fieldsType").unwrap_or_default(),
            fields: fields.map(Fields::Tree),
            subresource: text("subresource").unwrap_or_default(),
            raw: Raw::Tree(at, entry),
        }
    }

    fn of_text(entry: &'a str) -> Result<Self, String> {
        let mut read = Self {
            manager: Cow::default(),
            operation: Cow::default(),
            api_version: Cow::default(),
            time: None,
            fields_type: Cow::default(),
            fields: None,
            subresource: Cow::default(),
            raw: Raw::Text(entry),
        };
        for Member { name, value } in members::of(entry.as_bytes()) {
            let value = &entry[value];
            let text = || match value.starts_with('"') {
                true => wire::text_of(value).map_err(|error| error.to_string()),
                false => Ok(Cow::default()),
            };
            match &entry[name] {
                "manager" => read.manager = text()?,
                "operation" => read.operation = text()?,
                "apiVersion" => read.api_version = text()?,
                "time" => read.time = Some(text()?).filter(|time| !time.is_empty()),
                "fieldsType" => read.fields_type = text()?,
                "fieldsV1" if value != "null" => read.fields = Some(Fields::Text(value)),
                "subresource" => read.subresource = text()?,
                _ => {}
            }
        }
        Ok(read)
    }
}

impl<'a> Fields<'a> {
    /// The set.
    ///
    /// # Errors
    /// As [`FieldSet::from_wire`].
    pub(super) fn set(self) -> Result<FieldSet<'a>, WireError> {
        match self {
            Self::Tree(fields) => FieldSet::from_wire(fields),
            Self::Text(fields) => FieldSet::from_wire_text(fields),
        }
    }

    /// Whether these fields are among them. `false` may also mean that it is not known.
    pub(super) fn have(self, wanted: &FieldSet<'_>) -> bool {
        match self {
            // A tree is read whole: few writes have one.
            Self::Tree(_) => wanted.is_empty(),
            Self::Text(fields) => wire::has_all(fields, wanted),
        }
    }

    /// A tree of them.
    pub(super) fn to_tree(self) -> Value {
        match self {
            Self::Tree(fields) => fields.clone(),
            Self::Text(fields) => serde_json::from_str(fields).unwrap_or_default(),
        }
    }

    /// Appends them.
    pub(super) fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Tree(fields) => encode::push(out, fields),
            Self::Text(fields) => out.extend_from_slice(fields.as_bytes()),
        }
    }

    /// Whether there are steps at the top, and all of them are like this, which names with escapes
    /// are not.
    pub(super) fn all_steps(self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Tree(fields) => fields
                .as_object()
                .is_some_and(|fields| !fields.is_empty() && fields.keys().all(|step| is(step))),
            Self::Text(fields) => {
                let is = |step: &str| !step.contains('\\') && is(step);
                let mut steps = members::of(fields.as_bytes()).peekable();
                steps.peek().is_some() && steps.all(|member| is(&fields[member.name]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_the_tree_is() {
        let entries = [
            r#"{"manager":"ab","operation":"Apply","apiVersion":"v1","time":"t","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}},"subresource":"status"}"#,
            r#"{"manager":1,"operation":"Update","time":null,"fieldsV1":null,"other":[{}]}"#,
            "{}",
        ];
        let text = format!("[{}]", entries.join(","));
        let tree: Value = serde_json::from_str(&text).unwrap();
        let (of_tree, of_text) =
            (Stored::Tree(Some(&tree)).read(), Stored::Text(Some(&text)).read());
        let (of_tree, of_text) = (of_tree.unwrap(), of_text.unwrap());
        assert_eq!((of_tree.len(), of_text.len()), (3, 3));
        for (a, b) in of_tree.iter().zip(&of_text) {
            let texts = |read: &Read<'_>| {
                let Read { manager, operation, api_version, fields_type, subresource, .. } = read;
                [manager, operation, api_version, fields_type, subresource].map(ToString::to_string)
            };
            assert_eq!(texts(a), texts(b));
            assert_eq!((&a.time, a.fields.is_some()), (&b.time, b.fields.is_some()));
        }
        let first = of_text[0].fields.expect("there are fields");
        assert!(first.all_steps(|step| step == "f:a") && !first.all_steps(|step| step == "f:b"));
    }
}
