//! Differences that stay, and the record.

use std::collections::BTreeMap;

use super::{Answer, Counts, Difference};

/// A class of differences that stay.
struct Known {
    /// What differs.
    what: &'static str,
    /// Why it stays.
    why: &'static str,
    /// Whether a difference is one of them.
    is: fn(&str, &Difference) -> bool,
}

/// The classes; the first that fits counts.
const KNOWN: &[Known] = &[
    Known {
        what: "an optional element or entry of type `dyn` panics in the compiler",
        why: "a fault of cel-go; here it compiles",
        is: |part, _| part == "panic",
    },
    Known {
        what: "`sort`, `sortBy`, `distinct` and `sum` of a list that is an error",
        why: "cel-go panics and answers `internal error`; here it is the error",
        is: |_, one| one.theirs.error.contains("internal error: interface conversion"),
    },
    Known {
        what: "an optional value behind a condition, `optMap`, `optFlatMap` or `filter`",
        why: "cel-go converts it to a native value and back: layers of optionals are lost, `none` \
              becomes `null`, a type a text, and Kubernetes' own types become errors",
        is: |part, one| {
            let Difference { expression, ours, theirs, .. } = one;
            let optional = expression.contains("opt")
                || expression.contains(".?")
                || expression.contains("[?")
                || expression.contains("first()")
                || expression.contains("last()");
            let conditional = ["?", "optMap", "optFlatMap", "orValue", "or(", "filter("]
                .iter()
                .any(|text| expression.contains(text));
            let layers = ["optional.of(optional", "optional.ofNonZeroValue(optional"];
            let lost = layers.iter().any(|text| expression.contains(text))
                || theirs.error.contains("unsupported conversion to ref.Val")
                || theirs.error.contains("no such overload")
                || theirs.error.contains("index out of bounds")
                || theirs.value.as_ref().is_some_and(|value| {
                    value.contains("value of error") || value.contains("null")
                })
                || native(ours) == native(theirs);
            let shorter = part == "cost" && layers.iter().any(|text| expression.contains(text));
            (matches!(part, "result" | "value" | "error") && lost || shorter)
                && optional
                && conditional
        },
    },
    Known {
        what: "the tokens that a syntax error expects, and what follows the first error",
        why: "the parsers recover differently; both refuse the expression",
        is: |part, one| {
            let is_syntax = |issues: &str| {
                issues.lines().any(|line| line.contains("Syntax error"))
                    || issues.lines().next().is_some_and(|first| first.contains("Incomplete"))
            };
            part == "issues" && is_syntax(&one.ours.issues)
        },
    },
    Known {
        what: "the numbers of type variables in issues",
        why: "both refuse the expression; the variables are numbered in another order",
        is: |part, one| {
            part == "issues" && unnumbered(&one.ours.issues) == unnumbered(&one.theirs.issues)
        },
    },
    Known {
        what: "the place of `sortBy` on another one that is refused",
        why: "both refuse the expression; the parser there reports both at the first operand",
        is: |part, one| {
            part == "issues" && one.theirs.issues.matches("sortBy can only be applied").count() > 1
        },
    },
    Known {
        what: "the largest estimate of `==` on Kubernetes' own types behind `dyn`",
        why: "one unit there; here that of a value of unknown size",
        is: |part, one| part == "estimate" && one.expression.contains("authorizer."),
    },
    Known {
        what: "an index of type `dyn` that can be no key",
        why: "both fail: there as an operand of a wrong type, here as a key that is missing",
        is: |part, one| {
            part == "error"
                && one.theirs.error == "no such overload"
                && one.ours.error.starts_with("no such key")
        },
    },
    Known {
        what: "lists of the object that are joined with other lists",
        why: "the reference gives all items the schema of the first list's, which others may not \
              have",
        is: |_, one| one.theirs.error.contains("for the provided schema"),
    },
    Known {
        what: "the cost of a comprehension over a map that ends early",
        why: "Go walks maps in an order by chance",
        is: |part, one| {
            let ends = [".exists(", ".all("].iter().any(|text| one.expression.contains(text));
            part == "cost" && ends && one.expression.contains('{')
        },
    },
    Known {
        what: "the difference of a quantity and -2^63",
        why: "the reference negates the number, which has no positive counterpart",
        is: |part, one| {
            ["value", "result"].contains(&part)
                && one.expression.contains("sub(-9223372036854775808)")
        },
    },
    Known {
        what: "doubles and other values as keys of map literals",
        why: "cel-go takes them, against the specification; here they are refused",
        is: |_, one| one.ours.error.contains("unsupported key type"),
    },
    Known {
        what: "an index by a constant whose type is no key",
        why: "cel-go refuses it when it compiles, with the name of a Go type; here it fails when it \
              runs",
        is: |_, one| {
            one.theirs.issues.contains("invalid qualifier type")
                || one.theirs.error.contains("invalid qualifier type")
        },
    },
    Known {
        what: "names of Go types in errors",
        why: "`*types.Optional` is `optional_type` here",
        is: |part, one| {
            part == "error"
                && (one.theirs.error.contains("expected iterable type")
                    || one.theirs.error.contains("unsupported comprehension range type"))
        },
    },
    Known {
        what: "the cost of an operand that fails beside one that decides",
        why: "cel-go counts an absent field of `&&` and `||`; here it is free",
        is: |part, one| part == "cost" && one.ours.cost < one.theirs.cost,
    },
    Known {
        what: "texts that are no time zone",
        why: "the reference shows errors of Go's packages",
        is: |part, one| part == "error" && one.ours.error.contains("unknown time zone"),
    },
    Known {
        what: "fields of Kubernetes' own types",
        why: "both refuse the expression; the text there is of an internal check",
        is: |part, one| {
            part == "issues" && one.theirs.issues.contains("unexpected failed resolution")
        },
    },
    Known {
        what: "the limit of costs beside another error",
        why: "cel-go evaluates all operands before it looks at their errors; here the first error \
              ends it",
        is: |_, one| one.theirs.error.contains("cost limit exceeded") && !one.ours.error.is_empty(),
    },
    Known {
        what: "checks of the authorizer as elements",
        why: "they equal nothing in the reference, not even themselves",
        is: |part, one| {
            let compared = ["==", "!="].iter().any(|text| one.expression.contains(text));
            (part == "value" || part == "result" && compared)
                && one.expression.contains("authorizer.")
        },
    },
    Known {
        what: "functions of lists over an operand of type `dyn`",
        why: "the reference has an overload per type of elements, and finds none for some types; \
              here there is always one",
        is: |_, one| {
            one.theirs.error.starts_with("no such overload: ")
                && one.theirs.error.ends_with("(list)")
        },
    },
    Known {
        what: "NaN in a list that is sorted",
        why: "it has no order, and where it ends depends on the algorithm; here it is last",
        is: |part, one| {
            let expression = one.expression.to_lowercase();
            matches!(part, "value" | "result")
                && expression.contains("nan")
                && expression.contains("sort")
        },
    },
    Known {
        what: "the last digit of `asApproximateFloat`",
        why: "the reference multiplies by a power of ten; here the value is divided once",
        is: |part, one| part == "value" && one.expression.contains("asApproximateFloat"),
    },
    Known {
        what: "hexadecimal floating-point numbers in texts",
        why: "Go reads them; here they are no numbers",
        is: |_, one| one.expression.contains("0x1p4"),
    },
];

/// Issues without the numbers of type variables, and without what these make longer.
fn unnumbered(issues: &str) -> Vec<String> {
    let mut parts = issues.split("_var");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned());
    std::iter::once(first).chain(rest).collect()
}

/// A value without what cel-go loses in a conversion.
fn native(answer: &Answer) -> Option<String> {
    let text = answer.value.as_ref()?.replace("some(", "").replace(['(', ')', '"'], "");
    // 3 in a list of doubles.
    let text = text.replace("double:4008000000000000", "int:3");
    Some(text.replace("none", "null").replace("type:", ""))
}

/// Writes the record.
pub(super) fn report(counts: &Counts, found: BTreeMap<&'static str, Vec<Difference>>, seed: usize) {
    let mut unknown: BTreeMap<(&str, String), Vec<&Difference>> = BTreeMap::new();
    let mut known: BTreeMap<usize, Vec<&Difference>> = BTreeMap::new();
    for (part, differences) in &found {
        for one in differences {
            match KNOWN.iter().position(|known| (known.is)(part, one)) {
                Some(at) => known.entry(at).or_default().push(one),
                None => unknown.entry((part, one.class.clone())).or_default().push(one),
            }
        }
    }
    let mut text = String::new();
    for ((part, class), differences) in &unknown {
        let Some(one) = differences.iter().min_by_key(|one| one.expression.len()) else { continue };
        text += &format!(
            "{} {part}: {class}\n    {} [{}]\n    here  {:?}\n    there {:?}\n",
            differences.len(),
            one.expression,
            one.object,
            one.ours,
            one.theirs
        );
    }
    let n_unknown: usize = unknown.values().map(Vec::len).sum();
    let n_known: usize = known.values().map(Vec::len).sum();
    let mut page = format!(
        "# Expressions here and in cel-go\n\nMade by `cargo xtask cel-go`: do not edit.\n\n\
         {}\n\nExpressions by chance over all functions and macros of Kubernetes 1.36's environment, \
         well typed or not, over objects of one schema. Each is compiled, estimated and evaluated \
         here and by cel-go {} with `k8s.io/apiserver/pkg/cel/environment`, and both are compared \
         in: whether it compiles, the text of the issues, the type, the estimated costs, the value \
         or the text of the error, and what it has cost.\n\n\
         | cases (seed {seed}) | do not compile | fail | have a value | differ |\n\
         |---|---|---|---|---|\n| {} | {} | {} | {} | {} |\n\n\
         | differences | cases | why they stay | for example |\n|---|---|---|---|\n",
        std::env::var("CEL_GO_WHERE").unwrap_or_default(),
        std::env::var("CEL_GO_VERSION").unwrap_or_default(),
        counts.cases,
        counts.refused,
        counts.failed,
        counts.evaluated,
        n_known + n_unknown,
    );
    for (at, class) in KNOWN.iter().enumerate() {
        let Some(cases) = known.get(&at) else { continue };
        let example = cases.iter().min_by_key(|one| one.expression.len());
        let example = example.map(|one| one.expression.replace('|', "\\|")).unwrap_or_default();
        page += &format!("| {} | {} | {} | `{example}` |\n", class.what, cases.len(), class.why);
    }
    let shortest = unknown.values().flatten().min_by_key(|one| one.expression.len());
    if let Some(one) = shortest {
        let example = one.expression.replace('|', "\\|");
        page += &format!(
            "| what is in no class yet | {n_unknown} | the chore prints them, and fails | `{example}` |\n"
        );
    }
    let record = std::env::var_os("CEL_GO_RECORD").expect("CEL_GO_RECORD is set");
    std::fs::write(record, page).expect("write the record");
    assert!(unknown.is_empty(), "{n_unknown} unknown differences:\n{text}");
}
