//! Figures are those of Kubernetes' own tests (`TestCostEstimation` of its schema/cel package).

use super::estimate;
use crate::check::{Env, check};
use crate::decl::{DeclType, ListType, Property};
use crate::macros::Macros;
use crate::parse::parse;

type Make = fn(Option<u64>) -> DeclType;

fn cost(root: &DeclType, rule: &str) -> u64 {
    let env =
        Env::kubernetes().variable("self", root.ty.clone()).variable("oldSelf", root.ty.clone());
    let checked = parse(rule, &Macros::KUBERNETES).and_then(|ast| check(ast, &env)).unwrap();
    estimate(&checked, root).max
}

/// Each rule with its cost where the schema has no bounds, and with a bound its cost with it.
#[track_caller]
fn costs(make: Make, cases: &[(&str, u64, u64, u64)]) {
    for (rule, unbounded, bound, bounded) in cases {
        let found = (cost(&make(None), rule), cost(&make(Some(*bound)), rule));
        assert_eq!(found, (*unbounded, *bounded), "{rule}");
    }
}

fn text(format: &str, max: Option<u64>) -> DeclType {
    DeclType::text(Some(format), max, std::iter::empty())
}

fn list(items: DeclType, max: Option<u64>) -> DeclType {
    DeclType::list(items, ListType::Atomic, max)
}

fn property(name: &str, decl: DeclType, required: bool) -> Property {
    Property { name: name.to_owned(), decl: Some(decl), required, defaulted: false }
}

fn object() -> DeclType {
    let properties =
        [property("required", text("", None), true), property("optional", text("", None), false)];
    DeclType::object("o".to_owned(), properties)
}

const TRUE: &str = "self.all(x, true)";
const HAS: &str = "has(self.x)";

#[test]
fn loops_over_lists_cost_their_step_times_their_size() {
    costs(
        |max| list(DeclType::double(), max),
        &[
            (TRUE, 4_718_591, 10, 32),
            ("self[1] == 0.0", 2, 5000, 2),
            ("self[3] == 0.0", 2, 0, 2),
            ("self.all(x, x == 0.0)", 6_291_454, 3 * 1024 * 2048, 25_165_826),
        ],
    );
    let numbers = |max| list(DeclType::double(), max);
    let squared = "self.all(x, self.all(y, true))";
    assert!(cost(&numbers(None), squared) > 10_000_000);
    assert_eq!(cost(&numbers(Some(10)), squared), 352);
    let cubed = "self.all(x, self.all(y, self.all(z, true)))";
    assert_eq!(cost(&numbers(Some(10)), cubed), 3552);
    costs(
        |max| list(text("", None), max),
        &[(TRUE, 3_145_727, 20, 62), ("self[1] == self[1]", 314_577, 8, 314_577)],
    );
    costs(
        |max| list(DeclType::bool(), max),
        &[(TRUE, 1_887_437, 5, 17), ("self[0] == false", 2, 25, 2)],
    );
    costs(
        |max| list(list(DeclType::double(), None), max),
        &[(TRUE, 3_145_727, 100, 302), ("self[0][0] == -1.0", 3, 51, 3)],
    );
    costs(|max| list(object(), max), &[(TRUE, 555_128, 50, 152), ("self[0] == null", 2, 422, 2)]);
    costs(
        |max| list(DeclType::map(DeclType::double(), None), max),
        &[("self.all(x, x.y == 25.2)", 6_291_452, 12, 74), ("self[0].x > 2.0", 4, 3000, 4)],
    );
    costs(
        |max| list(DeclType::int_or_string(None), max),
        &[(TRUE, 4_718_591, 10, 32), ("self[0] == 5", 3, 10, 3)],
    );
    costs(
        |max| list(text("duration", None), max),
        &[(TRUE, 2_359_295, 5, 17), ("self[0].getHours() == 2", 4, 525, 4)],
    );
    costs(
        |max| list(text("date", None), max),
        &[(TRUE, 725_936, 15, 47), ("self[2].getDayOfMonth() == 13", 4, 42, 4)],
    );
    costs(
        |max| list(text("date-time", None), max),
        &[(TRUE, 428_963, 25, 77), ("self[2].getMinutes() == 45", 4, 99, 4)],
    );
}

#[test]
fn loops_over_maps_cost_their_step_times_their_size_and_tests_for_presence_are_free() {
    costs(
        |max| DeclType::map(DeclType::double(), max),
        &[(TRUE, 1_348_169, 10, 32), (HAS, 1, 100, 1), ("self[\"x\"] == 0.0", 2, 0, 2)],
    );
    costs(
        |max| DeclType::map(DeclType::int(), max),
        &[("oldSelf.size() == self.size()", 5, 10, 5)],
    );
    costs(|max| DeclType::map(text("", None), max), &[(TRUE, 1_179_647, 3, 11), (HAS, 1, 550, 1)]);
    costs(
        |max| DeclType::map(DeclType::bool(), max),
        &[(TRUE, 943_718, 100, 302), (HAS, 1, 1024, 1)],
    );
    costs(
        |max| DeclType::map(text("", max), max),
        &[("self.all(x, x.contains(self[x]))", 2_752_507, 10, 72)],
    );
    costs(
        |max| DeclType::map(DeclType::int_or_string(None), max),
        &[(TRUE, 1_348_169, 15, 47), (HAS, 1, 5000, 1)],
    );
    costs(|max| DeclType::map(object(), max), &[(TRUE, 428_963, 20, 62), (HAS, 1, 9001, 1)]);
    costs(
        |max| DeclType::map(list(DeclType::double(), None), max),
        &[(TRUE, 1_179_647, 25, 77), (HAS, 1, 40_000, 1)],
    );
    costs(
        |max| DeclType::map(text("duration", None), max),
        &[(TRUE, 1_048_577, 5, 17), (HAS, 1, 256, 1), ("self[\"c\"] == self[\"d\"]", 8, 42, 8)],
    );
    costs(
        |max| DeclType::map(text("date", None), max),
        &[(TRUE, 524_288, 10, 32), (HAS, 1, 65_536, 1)],
    );
    costs(
        |max| DeclType::map(text("date-time", None), max),
        &[(TRUE, 349_526, 25, 77), (HAS, 1, 490, 1), ("self[\"a\"] == self[\"b\"]", 8, 7, 8)],
    );
    costs(
        |max| list(DeclType::map(object(), max), max),
        &[("self.all(x, x[\"y\"].required == \"z\")", 7_340_027, 10, 72)],
    );
    costs(
        |_| list(DeclType::map(object(), Some(10)), None),
        &[("self.all(x, x[\"y\"].required == \"z\")", 7_340_027, 10, 7_340_027)],
    );
}

#[test]
fn texts_cost_a_tenth_of_their_size() {
    costs(
        |max| text("", max),
        &[
            ("self.contains('test')", 314_574, 10, 5),
            ("self.startsWith('test')", 2, 15, 2),
            ("self.endsWith('test')", 2, 30, 2),
            ("size(self + \"hello\") > size(\"hello\")", 314_578, 4, 7),
            ("self.matches(\"x\")", 314_574, 50, 22),
            ("\"\".matches(\"(((((((((())))))))))[0-9]\")", 7, 10, 7),
            ("self.matches(\"\")", 1, 100, 1),
            ("self == \"x\"", 2, 0, 1),
        ],
    );
    costs(|max| text("byte", max), &[("self == b\"x\"", 2, 0, 1)]);
    costs(
        |max| DeclType::text(None, max, ["A", "B", "C", "LongValue"].into_iter()),
        &[("self.contains('A')", 2, 1000, 401)],
    );
}

#[test]
fn functions_of_libraries_have_costs_of_their_own() {
    costs(
        |max| text("", max),
        &[
            ("self.find('[0-9]+') == ''", 629_147, 10, 11),
            ("self.lowerAscii() == 'lower!'", 314_575, 10, 6),
        ],
    );
    costs(
        |max| list(text("", max), max),
        &[
            ("self.join(' ') == 'aa bb'", 329_853_068_905, 10, 43),
            ("self.isSorted() == true", 329_854_432_052, 10, 52),
        ],
    );
    costs(
        |max| {
            let properties = [
                property("str", text("", max), false),
                property("before", text("", Some(2)), false),
                property("after", text("", Some(4)), false),
            ];
            DeclType::object("self".to_owned(), properties)
        },
        &[("self.str.replace(self.before, self.after) == 'does not matter'", 629_154, 4, 12)],
    );
    costs(
        |max| {
            let properties = [
                property("str", text("", max), false),
                property("separator", text("", max), false),
            ];
            DeclType::object("self".to_owned(), properties)
        },
        &[("self.str.split(self.separator) == []", 629_160, 10, 22)],
    );
    costs(DeclType::int_or_string, &[("isQuantity(self)", 314_574, 20, 9)]);
}

/// The sizes of the results of these functions are unknown.
#[test]
fn results_of_unknown_size_cost_without_bounds_when_they_are_used() {
    let number = DeclType::object("self".to_owned(), [property("n", DeclType::int(), false)]);
    for rule in [
        "\"x\" + string(self.n) != ''",
        "[\"a\"].join(\",\") != ''",
        "[\"a\", \"b\"].max() == \"b\"",
    ] {
        assert!(cost(&number, rule) > 10_000_000, "{rule}: {}", cost(&number, rule));
    }
    for rule in ["\"%d\".format([self.n]) != ''", "string(self.n) != ''"] {
        assert!(cost(&number, rule) < 100, "{rule}: {}", cost(&number, rule));
    }
}
