//! The table of functions.
//!
//! Every library is a file here, whose `rows` are the overloads of its functions. The checker, the
//! estimate of costs and the evaluator read the same rows.

use std::collections::HashMap;
use std::sync::LazyLock;

pub mod authorizer;
pub(crate) mod devices;
mod extended;
mod format;
pub(crate) mod go;
pub(crate) mod json_patch;
mod lists;
mod net;
mod optionals;
pub(crate) mod quantity;
mod regex;
pub(crate) mod semver;
mod sets;
mod standard;
mod strings;
#[cfg(test)]
pub(crate) mod tests;
mod url;

use crate::eval::Function;
use crate::types::Type;
use crate::value::Value;

/// One overload of a function.
#[derive(Debug)]
pub struct Overload {
    /// The function's name: `startsWith`, `sets.contains`, `_+_`.
    pub function: &'static str,
    /// cel-go's id of the overload: `starts_with_string`.
    pub id: &'static str,
    /// Whether it is called on a receiver, which is then the first of [`Overload::args`].
    pub member: bool,
    /// Types of the operands, the receiver first.
    pub args: Vec<Type>,
    /// The type of the result.
    pub result: Type,
    /// The cost of a call, estimated and counted.
    pub cost: Cost,
    /// How it is computed.
    pub call: Call,
}

/// How an overload is computed. None: the evaluator does it itself (`_&&_`, `_?_:_`, …).
pub type Call = Option<Function>;

/// The cost of a call without its operands.
///
/// One rule has two readings: before a rule runs from the bounds of sizes, when it runs from the
/// sizes. A string is traversed at a tenth of a unit for a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// One unit.
    One,
    // --- the language itself
    /// Equality and order (all overloads of `_==_` and `_!=_`; `<` and its like of strings and
    /// bytes): the smaller operand is traversed.
    Compare,
    /// `_+_` of strings and of bytes: the result is traversed. Result: the sum of the sizes.
    Concat,
    /// `_+_` of lists: one. Result: the sum of the sizes.
    AddList,
    /// `_&&_`, `_||_`: nothing of its own; the second operand may be skipped.
    Logical,
    /// `_?_:_`: nothing of its own; the dearer branch.
    Conditional,
    /// `@in` of a list: its size.
    InList,
    /// `includes` of an attribute of a device: the most values of one; when it runs, one.
    Includes,
    /// `startsWith`, `endsWith`: the argument is traversed.
    Affix,
    /// `contains`: receiver times argument, both traversed.
    Contains,
    /// `matches`: receiver and one more traversed, times a quarter of the pattern's size.
    Matches,
    /// `bytes(string)`: the argument is traversed. Result: one to four times its size.
    StringToBytes,
    /// `string(bytes)`: the argument is traversed. Result: a quarter of its size to all of it.
    BytesToString,
    /// `_[_]` of a list: one. Result: as an element.
    IndexList,
    /// `_[_]` of a map: one. Result: as a value.
    IndexMap,
    // --- strings
    /// `format`: the receiver is traversed. Result: unknown.
    Format,
    /// `strings.quote`: the argument is traversed. Result: up to twice its size and two.
    Quote,
    /// `lowerAscii`, `upperAscii`, `substring`, `trim`, `url`: the first operand is traversed.
    /// Result: its size.
    Scan,
    /// `replace`: the receiver is traversed twice.
    Replace,
    /// `split`: the receiver is traversed twice. Result: up to its size.
    Split,
    /// `join`: the result is traversed (when it runs: twice).
    Join,
    /// `find`, `findAll`: as [`Cost::Matches`]. Result: up to the receiver's size.
    Find,
    // --- lists
    /// `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`, of lists and of strings: one for
    /// each element and its traversal.
    Aggregate,
    /// `sets.contains`, `sets.intersects`: one and the product of the sizes.
    Sets,
    /// `sets.equivalent`: one and twice the product of the sizes.
    SetsEquivalent,
    /// `slice`: as the new list.
    Slice,
    /// `flatten`.
    Flatten,
    /// `lists.range`.
    Range,
    /// `reverse` of lists.
    Reverse,
    /// `distinct`: twice the square of the size.
    Distinct,
    /// `sort` and the overloads `list_<type>_sort`.
    Sort,
    /// `@sortByAssociatedKeys`.
    SortBy,
    // --- types of Kubernetes
    /// `quantity`, `isQuantity`, `semver`, `isSemver`, `ip(string)`, `cidr`, `isIP`, `isCIDR`: the
    /// argument is traversed. Result: unknown.
    Parse,
    /// `ip.isCanonical`: the argument is traversed twice.
    ParseTwice,
    /// `containsIP`; of a text, which is parsed first, if true.
    ContainsIp(bool),
    /// `containsCIDR`; of a text, which is parsed first, if true.
    ContainsCidr(bool),
    /// `validate` of a format.
    Validate,
    /// `check` of the authorizer: 350,000, so that two of them fit into an expression.
    Check,
    /// `fieldSelector`, `labelSelector` of the authorizer: the text is traversed, and each of
    /// its requirements is made.
    Selector,
}

/// All functions, by name.
#[derive(Debug)]
pub struct Library {
    functions: HashMap<&'static str, Vec<Overload>>,
}

impl Library {
    /// The functions that Kubernetes 1.36 has in rules of custom resources.
    pub fn kubernetes() -> &'static Library {
        static KUBERNETES: LazyLock<Library> = LazyLock::new(|| Library::new(rows()));
        &KUBERNETES
    }

    /// Kubernetes' functions, and cel-go's `math`, `base64` and reversing of texts. With
    /// [`Macros::ALL`](crate::macros::Macros::ALL) for expressions that are not Kubernetes'.
    pub fn extended() -> &'static Library {
        static EXTENDED: LazyLock<Library> = LazyLock::new(|| {
            let later = extended::rows().into_iter().chain(strings::later());
            Library::new(rows().into_iter().chain(later).collect())
        });
        &EXTENDED
    }

    /// Kubernetes' functions, and `jsonpatch.escapeKey`.
    pub fn patches() -> &'static Library {
        static PATCHES: LazyLock<Library> =
            LazyLock::new(|| Library::new(rows().into_iter().chain(json_patch::rows()).collect()));
        &PATCHES
    }

    /// Kubernetes' functions, and `includes` of attributes of devices.
    pub fn devices() -> &'static Library {
        static DEVICES: LazyLock<Library> =
            LazyLock::new(|| Library::new(rows().into_iter().chain(devices::rows()).collect()));
        &DEVICES
    }

    fn new(rows: Vec<Overload>) -> Library {
        let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
        for row in rows {
            functions.entry(row.function).or_default().push(row);
        }
        Library { functions }
    }

    /// The overloads of a function in their order; `None` if there is no such function.
    pub fn function(&self, name: &str) -> Option<&[Overload]> {
        self.functions.get(name).map(Vec::as_slice)
    }

    /// All overloads, in no order.
    pub fn overloads(&self) -> impl Iterator<Item = &Overload> {
        self.functions.values().flatten()
    }
}

fn rows() -> Vec<Overload> {
    [
        standard::rows(),
        optionals::rows(),
        url::rows(),
        regex::rows(),
        lists::rows(),
        quantity::rows(),
        strings::rows(),
        sets::rows(),
        net::rows(),
        format::rows(),
        authorizer::rows(),
        semver::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A row of a function that is called by its name alone. Costs one.
fn global<const N: usize>(
    function: &'static str,
    id: &'static str,
    args: [Type; N],
    result: Type,
) -> Overload {
    Overload { function, id, member: false, args: args.into(), result, cost: Cost::One, call: None }
}

/// A row of a function that is called on its first operand. Costs one.
fn member<const N: usize>(
    function: &'static str,
    id: &'static str,
    args: [Type; N],
    result: Type,
) -> Overload {
    Overload { member: true, ..global(function, id, args, result) }
}

impl Overload {
    fn cost(self, cost: Cost) -> Overload {
        Overload { cost, ..self }
    }

    fn call(self, call: Function) -> Overload {
        Overload { call: Some(call), ..self }
    }
}

/// A value as errors show it.
pub(crate) fn display(value: &Value<'_>) -> String {
    go::display(value)
}

/// The size of a format's pattern, from which the cost of the format is counted.
pub(crate) fn format_pattern_size(format: &Value<'_>) -> u64 {
    format::pattern_size(format)
}
