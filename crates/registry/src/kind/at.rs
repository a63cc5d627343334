//! A place in an object under validation: its value and its path.
//!
//! # Theory
//!
//! The rules of a kind are functions of an [`At`]. They walk down from the root with
//! [`At::get`], [`At::each`] and [`At::entries`] and report where they stand. A place knows the
//! place above it, and the path is written only for a report: a valid object costs no allocation.
//!
//! [`check`] runs the rules on a new object. For an update it reports only what the stored object
//! does not violate in the same way: an object that was stored before a rule existed can be
//! updated, and what a client writes has to follow the rule.
use crate::features::{Feature, FeatureGates};
use crate::kind::{Report, validate_annotations, validate_label_selector, validate_labels};
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::quantity::Quantity;
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::RangeInclusive;

static MISSING: Value = Value::Null;

/// A place in an object.
#[derive(Clone, Copy)]
pub(super) struct At<'v, 'p> {
    /// The value; `null` if it is missing.
    pub(super) value: &'v Value,
    /// The names of its members.
    names: Names,
    /// The root of the stored object; `null` for a new object.
    old: &'v Value,
    up: Option<&'p At<'v, 'p>>,
    step: Step<'p>,
    errors: &'p RefCell<Report>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    /// The path of a root.
    Root(&'p field::Path),
    /// Members, separated by dots.
    Member(&'p str),
    /// An item of a list that is a member.
    Item(&'p str, usize),
    /// An entry of a map that is a member.
    Entry(&'p str, &'p str),
    /// An item of this list.
    Index(usize),
    /// An entry of this map.
    Key(&'p str),
}

/// Reports what the rules refuse in a new object, or in a changed one and not in the stored one.
pub(super) fn check(
    object: &Value,
    old: Option<&Value>,
    errors: &mut Report,
    rules: impl Fn(&At<'_, '_>),
) {
    let features = errors.features();
    let found = collect(object, old, &field::Path::root(), features, &rules);
    if found.is_empty() {
        return;
    }
    let Some(old) = old else { return errors.extend(found) };
    let known: HashSet<String> = collect(old, Some(old), &field::Path::root(), features, &rules)
        .iter()
        .map(ToString::to_string)
        .collect();
    errors.extend(found.into_iter().filter(|error| !known.contains(&error.to_string())));
}

fn collect(
    value: &Value,
    old: Option<&Value>,
    path: &field::Path,
    features: FeatureGates,
    rules: &impl Fn(&At<'_, '_>),
) -> field::Errors {
    let errors = RefCell::new(Report::new(features));
    let old = old.unwrap_or(&MISSING);
    let names = Names::of(value);
    rules(&At { value, names, old, up: None, step: Step::Root(path), errors: &errors });
    errors.into_inner().into_errors()
}

/// A bit for each name of an object's members, so that most that are missing need no search: rules
/// ask for many members that an object seldom has.
#[derive(Clone, Copy)]
struct Names(u64);

impl Names {
    /// Fewer members are searched as fast, and among more most bits are set.
    const MEMBERS: RangeInclusive<usize> = 4..=32;

    fn of(value: &Value) -> Self {
        let Value::Object(members) = value else { return Self(0) };
        if !Self::MEMBERS.contains(&members.len()) {
            return Self(u64::MAX);
        }
        Self(members.keys().fold(0, |names, name| names | Self::bit(name)))
    }

    fn bit(name: &str) -> u64 {
        let (first, last) = match name.as_bytes() {
            [] => (0, 0),
            [first, .., last] => (*first, *last),
            [only] => (*only, *only),
        };
        let hash = usize::from(first) * 3 + usize::from(last) * 13 + name.len();
        1 << (hash % 64)
    }

    /// Whether a member may be there. `name` is called only if its bit says something.
    fn may_have<'a>(self, name: impl FnOnce() -> &'a str) -> bool {
        self.0 == u64::MAX || self.0 & Self::bit(name()) != 0
    }
}

/// The first name of a path, and where the others begin.
fn first_name(path: &str) -> (&str, Option<usize>) {
    match path.bytes().position(|byte| byte == b'.') {
        Some(dot) => (&path[..dot], Some(dot + 1)),
        None => (path, None),
    }
}

/// The member at a path of names, separated by dots; `null` if it is missing.
fn find<'v>(value: &'v Value, path: &str) -> &'v Value {
    let (mut found, mut path) = (value, path);
    // Rules ask for many members, most of which are missing: names below one that is missing are
    // not looked at.
    while let Value::Object(members) = found
        && !members.is_empty()
    {
        let (name, rest) = first_name(path);
        let Some(member) = members.get(name) else { return &MISSING };
        let Some(rest) = rest else { return member };
        (found, path) = (member, &path[rest..]);
    }
    &MISSING
}

/// Whether two values are the same; a missing value is the same as an empty list or map, and below
/// the values as an empty list.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    let is_no_list = |value: &Value| value.as_array().map_or(value.is_null(), Vec::is_empty);
    a == b
        || is_empty(a) && is_empty(b)
        || alike(a, b, &|a, b| a == b || is_no_list(a) && is_no_list(b))
}

/// Whether two values are the same in all their members ([`same`]).
pub(super) fn same_in_all(a: &Value, b: &Value) -> bool {
    alike(a, b, &same)
}

/// Whether two values are the same in all their members and items. `are_same`: whether two are
/// that are not both objects or both lists; a missing member is `null`.
pub(super) fn alike(a: &Value, b: &Value, are_same: &impl Fn(&Value, &Value) -> bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, a)| alike(a, b.get(name).unwrap_or(&MISSING), are_same))
                && b.iter().all(|(name, b)| a.contains_key(name) || alike(&MISSING, b, are_same))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b, are_same))
        }
        _ => are_same(a, b),
    }
}

// Walking.
impl<'v, 'p> At<'v, 'p> {
    fn down<'q>(&'q self, value: &'v Value, step: Step<'q>) -> At<'v, 'q> {
        let names = Names::of(value);
        At { value, names, old: self.old, up: Some(self), step, errors: self.errors }
    }
    /// The value of a member, or of a member of members, separated by dots.
    fn find(&self, path: &str) -> &'v Value {
        match self.names.may_have(|| first_name(path).0) {
            true => find(self.value, path),
            false => &MISSING,
        }
    }
    /// A member, or a member of members, separated by dots.
    pub(super) fn get<'q>(&'q self, name: &'q str) -> At<'v, 'q> {
        self.down(self.find(name), Step::Member(name))
    }
    /// The member if it is there and not null.
    pub(super) fn given<'q>(&'q self, name: &'q str) -> Option<At<'v, 'q>> {
        Some(self.get(name)).filter(At::is_set)
    }
    /// The items of a list that is a member.
    pub(super) fn each<'q>(&'q self, name: &'q str) -> impl Iterator<Item = At<'v, 'q>> {
        let items = self.find(name).as_array().map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(move |(i, item)| self.down(item, Step::Item(name, i)))
    }
    /// The items of this list.
    pub(super) fn items<'q>(&'q self) -> impl Iterator<Item = At<'v, 'q>> {
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(move |(i, item)| self.down(item, Step::Index(i)))
    }
    /// The entries of a map that is a member, with their keys.
    pub(super) fn entries<'q>(
        &'q self,
        name: &'q str,
    ) -> impl Iterator<Item = (&'v str, At<'v, 'q>)> {
        let map = self.find(name).as_object();
        map.into_iter().flatten().map(move |(key, value)| {
            let key: &'v str = key;
            (key, self.down(value, Step::Entry(name, key)))
        })
    }
    /// An entry of a map that is a member.
    pub(super) fn entry<'q>(&'q self, name: &'q str, key: &'q str) -> At<'v, 'q> {
        let value = self.find(name).get(key).unwrap_or(&MISSING);
        self.down(value, Step::Entry(name, key))
    }
    /// The entries of this map, with their keys.
    pub(super) fn all<'q>(&'q self) -> impl Iterator<Item = (&'v str, At<'v, 'q>)> {
        let map = self.value.as_object();
        map.into_iter().flatten().map(move |(key, value)| {
            let key: &'v str = key;
            (key, self.down(value, Step::Key(key)))
        })
    }
    /// An entry of this map.
    pub(super) fn key<'q>(&'q self, key: &'q str) -> At<'v, 'q> {
        self.down(self.value.get(key).unwrap_or(&MISSING), Step::Key(key))
    }
    /// An entry of this map that the API reports at another key.
    pub(super) fn keyed_as<'q>(&'q self, key: &'q str, value: &'v Value) -> At<'v, 'q> {
        self.down(value, Step::Key(key))
    }
    /// A value that the API reports at a member of another name.
    pub(super) fn shown_as<'q>(&'q self, name: &'q str, value: &'v Value) -> At<'v, 'q> {
        self.down(value, Step::Member(name))
    }
    /// Whether a feature is on.
    pub(super) fn is_on(&self, feature: Feature) -> bool {
        self.errors.borrow().is_on(feature)
    }
    /// The same place with another value.
    pub(super) fn with(self, value: &'v Value) -> Self {
        Self { value, names: Names::of(value), ..self }
    }
    /// The value at the same path of the stored object, `null` if there is none, for rules that
    /// depend on it. The object is the one that [`check`] got.
    pub(super) fn stored(&self) -> &'v Value {
        let up = || self.up.map_or(self.old, At::stored);
        let of = |value: Option<&'v Value>| value.unwrap_or(&MISSING);
        match self.step {
            Step::Root(_) => self.old,
            Step::Member(name) => find(up(), name),
            Step::Item(name, i) => of(find(up(), name).get(i)),
            Step::Entry(name, key) => of(find(up(), name).get(key)),
            Step::Index(i) => of(up().get(i)),
            Step::Key(key) => of(up().get(key)),
        }
    }
    /// The path.
    pub(super) fn path(&self) -> field::Path {
        let up = || self.up.map_or_else(field::Path::root, At::path);
        match self.step {
            Step::Root(path) => path.clone(),
            Step::Member(name) => up().child(name),
            Step::Item(name, i) => up().child(name).index(i),
            Step::Entry(name, key) => up().child(name).key(key),
            Step::Index(i) => up().index(i),
            Step::Key(key) => up().key(key),
        }
    }
}

// The value.
impl<'v> At<'v, '_> {
    /// Whether it is there and not null.
    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }
    /// Whether a member is there and not null.
    pub(super) fn has(&self, name: &str) -> bool {
        !self.find(name).is_null()
    }
    /// The text; empty if it is missing.
    pub(super) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }
    /// The text of a member; empty if it is missing.
    pub(super) fn text_of(&self, name: &str) -> &'v str {
        self.find(name).as_str().unwrap_or_default()
    }
    /// The integer.
    pub(super) fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }
    /// The integer of a member; zero if it is missing.
    pub(super) fn int_of(&self, name: &str) -> i64 {
        self.find(name).as_i64().unwrap_or(0)
    }
    /// Whether a member is `true`.
    pub(super) fn is(&self, name: &str) -> bool {
        *self.find(name) == Value::Bool(true)
    }
    /// The items; none if it is no list.
    pub(super) fn list(&self) -> &'v [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }
    /// The items of a member; none if it is no list.
    pub(super) fn list_of(&self, name: &str) -> &'v [Value] {
        self.find(name).as_array().map_or(&[], Vec::as_slice)
    }
    /// The texts of a list that is a member.
    pub(super) fn texts_of(&self, name: &str) -> impl Iterator<Item = &'v str> {
        self.list_of(name).iter().filter_map(Value::as_str)
    }
    /// The number of items or members.
    pub(super) fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 0,
        }
    }
    /// The quantity, which decoding made canonical.
    pub(super) fn quantity(&self) -> Option<Quantity> {
        self.value.as_str().and_then(|text| Quantity::parse(text).ok())
    }
}

// Reports.
impl At<'_, '_> {
    /// The number of errors so far.
    pub(super) fn n_errors(&self) -> usize {
        self.errors.borrow().len()
    }
    /// Whether no further error would be kept.
    pub(super) fn is_full(&self) -> bool {
        self.errors.borrow().is_full()
    }
    /// Adds an error of this place. It is made only if there is room for it.
    pub(super) fn report(&self, error: impl FnOnce(field::Path) -> field::Error) {
        if !self.is_full() {
            let error = error(self.path());
            self.errors.borrow_mut().push(error);
        }
    }
    /// `Required value`.
    pub(super) fn required(&self, detail: &str) {
        self.report(|path| field::Error::required(path, detail));
    }
    /// `Invalid value`, with the value.
    pub(super) fn invalid(&self, detail: impl Into<String>) {
        self.invalid_as(self.value, detail);
    }
    /// `Invalid value`, with another value than that of the place.
    pub(super) fn invalid_as(&self, shown: &Value, detail: impl Into<String>) {
        self.report(|path| field::Error::invalid(path, shown, detail));
    }
    /// `Invalid value: "": …`: the API shows an empty text for some unions.
    pub(super) fn invalid_union(&self, detail: impl Into<String>) {
        self.invalid_as(&Value::String(String::new()), detail);
    }
    /// `Invalid value` without a value.
    pub(super) fn invalid_bare(&self, detail: impl Into<String>) {
        self.report(|path| {
            let kind = field::ErrorKind::Invalid;
            field::Error { kind, path, shown: None, detail: detail.into() }
        });
    }
    /// `Forbidden`.
    pub(super) fn forbidden(&self, detail: impl Into<String>) {
        self.report(|path| field::Error::forbidden(path, detail));
    }
    /// `Duplicate value`.
    pub(super) fn duplicate(&self) {
        self.report(|path| field::Error::duplicate(path, self.value));
    }
    /// `Duplicate value`, with a text that may be missing.
    pub(super) fn duplicate_of(&self, text: &str) {
        self.report(|path| field::Error::duplicate(path, &text.into()));
    }
    /// `Not found`.
    pub(super) fn not_found(&self) {
        self.report(|path| field::Error::not_found(path, self.value));
    }
    /// `Unsupported value`, with the supported ones in their order.
    pub(super) fn unsupported(&self, supported: &[&str]) {
        self.report(|path| field::Error::not_supported(path, self.value, supported));
    }
    /// `Too long`, in bytes.
    pub(super) fn too_long(&self, max: usize) {
        self.report(|path| field::Error::too_long(path, max));
    }
    /// `Invalid value`, once for each message.
    pub(super) fn faults(&self, messages: impl IntoIterator<Item = String>) {
        messages.into_iter().for_each(|message| self.invalid(message));
    }
}

// Rules.
impl<'v> At<'v, '_> {
    /// A text, list or map is required. Returns whether it is there.
    pub(super) fn need(&self) -> bool {
        self.need_for("")
    }
    /// The same with an explanation.
    pub(super) fn need_for(&self, detail: &str) -> bool {
        let is_there = match self.value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        };
        if !is_there {
            self.required(detail);
        }
        is_there
    }
    /// One of a few texts is required.
    pub(super) fn one_of(&self, supported: &[&str]) {
        if self.need() {
            self.one_of_if_set(supported);
        }
    }
    /// A text is required, and is one of a few: an empty one is not.
    pub(super) fn one_of_given(&self, supported: &[&str]) {
        if !self.is_set() {
            self.required("");
        }
        self.one_of_if_set(supported);
    }
    /// If there is a text, it is one of a few.
    pub(super) fn one_of_if_set(&self, supported: &[&str]) {
        if self.is_set() && !supported.contains(&self.text()) {
            self.unsupported(supported);
        }
    }
    /// The text is one of a few; a missing one is not.
    pub(super) fn choice(&self, supported: &[&str]) {
        if !supported.contains(&self.text()) {
            let text = self.text().into();
            self.report(|path| field::Error::not_supported(path, &text, supported));
        }
    }
    /// A text is required and has a form.
    pub(super) fn named(&self, form: impl FnOnce(&str) -> Vec<String>) {
        if self.need() {
            self.faults(form(self.text()));
        }
    }
    /// If there is a text, it has a form. An empty text counts as missing.
    pub(super) fn named_if_set(&self, form: impl FnOnce(&str) -> Vec<String>) {
        if !self.text().is_empty() {
            self.faults(form(self.text()));
        }
    }
    /// If there is a text, even an empty one, it has a form.
    pub(super) fn formed(&self, form: impl FnOnce(&str) -> Vec<String>) {
        if self.is_set() {
            self.faults(form(self.text()));
        }
    }
    /// If there is a number, it is not negative.
    pub(super) fn not_negative(&self) {
        if self.int().is_some_and(|number| number < 0) {
            self.invalid("must be greater than or equal to 0");
        }
    }
    /// If there is a number, it is positive.
    pub(super) fn positive(&self, detail: &str) {
        if self.int().is_some_and(|number| number <= 0) {
            self.invalid(detail);
        }
    }
    /// If there is a number, it is in a range.
    pub(super) fn between(&self, lowest: i64, highest: i64) {
        if self.int().is_some_and(|number| !(lowest..=highest).contains(&number)) {
            self.invalid(format!("must be between {lowest} and {highest}, inclusive"));
        }
    }
    /// If there is a number, it is a port. A missing port counts as zero.
    pub(super) fn port(&self) {
        let number = self.int().unwrap_or(0);
        if !(1..=65_535).contains(&number) {
            self.invalid_as(&number.into(), "must be between 1 and 65535, inclusive");
        }
    }
    /// The text is not among those before it.
    pub(super) fn unique(&self, seen: &mut HashSet<&'v str>) {
        if !seen.insert(self.text()) {
            self.duplicate();
        }
    }
    /// A list has at most so many items. Returns whether it has.
    pub(super) fn at_most(&self, max: usize) -> bool {
        let fits = self.len() <= max;
        if !fits {
            self.report(|path| field::Error::too_many(path, self.len(), max));
        }
        fits
    }
    /// The value is the same as in the stored object.
    pub(super) fn immutable(&self, old: &Value) {
        if !same(self.value, old) {
            self.invalid("field is immutable");
        }
    }
    /// The text is the same as in the stored object; a missing one is empty.
    pub(super) fn immutable_text(&self, old: &Value) {
        if self.text() != old.as_str().unwrap_or_default() {
            self.invalid_as(&self.text().into(), "field is immutable");
        }
    }
    /// Labels.
    pub(super) fn labels(&self) {
        self.with_path(|value, path, errors| validate_labels(Some(value), &path, errors));
    }
    /// Annotations.
    pub(super) fn annotations(&self) {
        self.with_path(|value, path, errors| validate_annotations(Some(value), &path, errors));
    }
    /// If there is a label selector, it is valid.
    pub(super) fn selector(&self) {
        self.with_path(|value, path, errors| validate_label_selector(value, &path, errors));
    }
    fn with_path(&self, rule: impl FnOnce(&Value, field::Path, &mut Report)) {
        if self.is_set() {
            rule(self.value, self.path(), &mut self.errors.borrow_mut());
        }
    }
}
