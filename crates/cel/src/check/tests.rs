use expect_test::{Expect, expect};

use super::{Env, check};
use crate::decl::{DeclType, ListType, Property};
use crate::macros::Macros;
use crate::parse::parse;

fn property(name: &str, decl: DeclType) -> Property {
    Property { name: name.to_owned(), decl: Some(decl), required: false, defaulted: false }
}

fn text() -> DeclType {
    DeclType::text(None, None, std::iter::empty())
}

/// `self` with a field of each type.
fn root() -> DeclType {
    let inner = DeclType::object(
        "self.o".to_owned(),
        [property("x-y", DeclType::int()), property("if", DeclType::bool())],
    );
    DeclType::object(
        "self".to_owned(),
        [
            property("s", text()),
            property("n", DeclType::int()),
            property("d", DeclType::double()),
            property("b", DeclType::bool()),
            property("any", DeclType::int_or_string(None)),
            property("when", DeclType::text(Some("date-time"), None, std::iter::empty())),
            property("long", DeclType::text(Some("duration"), None, std::iter::empty())),
            property("l", DeclType::list(DeclType::int(), ListType::Atomic, None)),
            property("ls", DeclType::list(text(), ListType::Set, None)),
            property("m", DeclType::map(text(), None)),
            property("o", inner),
        ],
    )
}

fn checked(expression: &str) -> String {
    let root = root();
    let env = Env::kubernetes().variable("self", root.ty.clone()).variable("oldSelf", root.ty);
    let result = parse(expression, &Macros::KUBERNETES).and_then(|ast| check(ast, &env));
    match result {
        Ok(checked) => checked.result_type().to_string(),
        Err(issues) => issues.to_string(),
    }
}

#[track_caller]
fn shows(expressions: &[&str], expected: Expect) {
    let texts: Vec<String> = expressions
        .iter()
        .map(|expression| format!("{expression} → {}", checked(expression)))
        .collect();
    expected.assert_eq(&texts.join("\n"));
}

#[test]
fn expressions_have_the_types_of_their_fields_and_functions() {
    shows(
        &[
            "self.n + 1 > 2",
            "self.o.x__dash__y == 1 && self.o.__if__",
            "self.l[0]",
            "self.m['a']",
            "self.m.a",
            "self.any",
            "self.any + 1",
            "self.n < self.d",
            "dyn(1) == 1.0",
            "self.b ? [self.n] : self.l",
            "self.when - self.when",
            "self.when + self.long",
            "self.l.map(x, string(x))",
            "self.l.filter(x, x > 1)",
            "self.ls.exists(x, x == self.s)",
            "self.m.all(k, k.startsWith('a') && self.m[k] != '')",
            "has(self.o.x__dash__y)",
            "size(self.l) == self.l.size()",
            "self.n in self.l",
            "'a' in self.m",
            "type(self.n)",
            "type(self.n) == int",
            "[]",
            "[] + self.l",
            "{}",
            "{'a': [], 'b': [1]}",
            "null",
            "self.o == null",
            "self.s.matches('^a+$')",
            "self.o.?x__dash__y",
            "[1, 2].all(i, v, i < v)",
            "type(self.when) == google.protobuf.Timestamp",
        ],
        expect![[r#"
            self.n + 1 > 2 → bool
            self.o.x__dash__y == 1 && self.o.__if__ → bool
            self.l[0] → int
            self.m['a'] → string
            self.m.a → string
            self.any → dyn
            self.any + 1 → int
            self.n < self.d → bool
            dyn(1) == 1.0 → bool
            self.b ? [self.n] : self.l → list(int)
            self.when - self.when → duration
            self.when + self.long → timestamp
            self.l.map(x, string(x)) → list(string)
            self.l.filter(x, x > 1) → list(int)
            self.ls.exists(x, x == self.s) → bool
            self.m.all(k, k.startsWith('a') && self.m[k] != '') → bool
            has(self.o.x__dash__y) → bool
            size(self.l) == self.l.size() → bool
            self.n in self.l → bool
            'a' in self.m → bool
            type(self.n) → type(int)
            type(self.n) == int → bool
            [] → list(dyn)
            [] + self.l → list(int)
            {} → map(dyn, dyn)
            {'a': [], 'b': [1]} → map(string, list(int))
            null → null
            self.o == null → bool
            self.s.matches('^a+$') → bool
            self.o.?x__dash__y → optional_type(int)
            [1, 2].all(i, v, i < v) → bool
            type(self.when) == google.protobuf.Timestamp → bool"#]],
    );
}

#[test]
fn faults_have_the_words_and_the_places_of_cel_go() {
    shows(
        &[
            "self.zz == 1",
            "foo == 1",
            "foo(1)",
            "self.n == 'a'",
            "self.n == self.d",
            "self.s.reverse()",
            "self.s.matches(1)",
            "[1, 'a']",
            "{'a': 1, 'b': 'x'}",
            "self.n.x",
            "self.s == null",
            "self.n && self.b",
            "self.l.all(x, x)",
            "self.n.all(x, x > 1)",
            "self['s']",
            "self.zz == 1 || self.yy == 2 || foo",
            "!self.n",
            "-self.s",
            "self.b ? 1 : 'a'",
            "[1, dyn('a')]",
            "Foo{a: 1}",
            "int{}",
            "self.m.all(k, v, v)",
        ],
        expect![[r#"
            self.zz == 1 → ERROR: <input>:1:5: undefined field 'zz'
             | self.zz == 1
             | ....^
            foo == 1 → ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')
             | foo == 1
             | ^
            foo(1) → ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')
             | foo(1)
             | ...^
            self.n == 'a' → ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'
             | self.n == 'a'
             | .......^
            self.n == self.d → ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, double)'
             | self.n == self.d
             | .......^
            self.s.reverse() → ERROR: <input>:1:15: found no matching overload for 'reverse' applied to 'string.()'
             | self.s.reverse()
             | ..............^
            self.s.matches(1) → ERROR: <input>:1:15: found no matching overload for 'matches' applied to 'string.(int)'
             | self.s.matches(1)
             | ..............^
            [1, 'a'] → ERROR: <input>:1:5: expected type 'int' but found 'string'
             | [1, 'a']
             | ....^
            {'a': 1, 'b': 'x'} → ERROR: <input>:1:15: expected type 'int' but found 'string'
             | {'a': 1, 'b': 'x'}
             | ..............^
            self.n.x → ERROR: <input>:1:7: type 'int' does not support field selection
             | self.n.x
             | ......^
            self.s == null → ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(string, null)'
             | self.s == null
             | .......^
            self.n && self.b → ERROR: <input>:1:5: expected type 'bool' but found 'int'
             | self.n && self.b
             | ....^
            self.l.all(x, x) → ERROR: <input>:1:15: expected type 'bool' but found 'int'
             | self.l.all(x, x)
             | ..............^
            self.n.all(x, x > 1) → ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)
             | self.n.all(x, x > 1)
             | ....^
            self['s'] → ERROR: <input>:1:5: found no matching overload for '_[_]' applied to '(self, string)'
             | self['s']
             | ....^
            self.zz == 1 || self.yy == 2 || foo → ERROR: <input>:1:5: undefined field 'zz'
             | self.zz == 1 || self.yy == 2 || foo
             | ....^
            ERROR: <input>:1:21: undefined field 'yy'
             | self.zz == 1 || self.yy == 2 || foo
             | ....................^
            ERROR: <input>:1:33: undeclared reference to 'foo' (in container '')
             | self.zz == 1 || self.yy == 2 || foo
             | ................................^
            !self.n → ERROR: <input>:1:1: found no matching overload for '!_' applied to '(int)'
             | !self.n
             | ^
            -self.s → ERROR: <input>:1:1: found no matching overload for '-_' applied to '(string)'
             | -self.s
             | ^
            self.b ? 1 : 'a' → ERROR: <input>:1:8: found no matching overload for '_?_:_' applied to '(bool, int, string)'
             | self.b ? 1 : 'a'
             | .......^
            [1, dyn('a')] → ERROR: <input>:1:8: expected type 'int' but found 'dyn'
             | [1, dyn('a')]
             | .......^
            Foo{a: 1} → ERROR: <input>:1:4: undeclared reference to 'Foo' (in container '')
             | Foo{a: 1}
             | ...^
            int{} → ERROR: <input>:1:4: 'int' is not a message type
             | int{}
             | ...^
            self.m.all(k, v, v) → ERROR: <input>:1:18: expected type 'bool' but found 'string'
             | self.m.all(k, v, v)
             | .................^"#]],
    );
}

#[test]
fn faults_in_later_lines_and_behind_wide_characters_have_their_places() {
    shows(
        &["self.n == 1 &&\n  self.zz == 2", "'öß漢' == self.zz", "\tself.zz"],
        expect![[r#"
            self.n == 1 &&
              self.zz == 2 → ERROR: <input>:2:7: undefined field 'zz'
             |   self.zz == 2
             | ......^
            'öß漢' == self.zz → ERROR: <input>:1:14: undefined field 'zz'
             | 'öß漢' == self.zz
             | .．．．.........^
            	self.zz → ERROR: <input>:1:6: undefined field 'zz'
             |  self.zz
             | .....^"#]],
    );
}

#[test]
fn literal_arguments_are_checked() {
    shows(
        &[
            "timestamp('x') == self.when",
            "timestamp('2020-01-01T00:00:00Z') == self.when",
            "duration('1x') == self.long",
            "self.s.matches('(')",
            "'%d and %s'.format([self.s, self.n])",
            "'%d'.format([])",
            "'%d'.format([1, 2])",
            "'%z'.format([1])",
            "'%s %%'.format([self.o])",
            "'%.3f'.format([1.5])",
            "[1, 2].sum() == 3 && self.ls.isSorted()",
            "quantity('1Ki').isGreaterThan(quantity(self.s))",
            "sets.contains(self.l, [1])",
            "ip.isCanonical(self.s)",
            "oldSelf.?n.orValue(1) == optional.of(1).value()",
            "self.l.sortBy(x, -x)[0]",
            "self.s.reverse()",
        ],
        expect![[r#"
            timestamp('x') == self.when → ERROR: <input>:1:11: invalid timestamp argument
             | timestamp('x') == self.when
             | ..........^
            timestamp('2020-01-01T00:00:00Z') == self.when → bool
            duration('1x') == self.long → ERROR: <input>:1:10: invalid duration argument
             | duration('1x') == self.long
             | .........^
            self.s.matches('(') → ERROR: <input>:1:16: invalid matches argument
             | self.s.matches('(')
             | ...............^
            '%d and %s'.format([self.s, self.n]) → ERROR: <input>:1:25: error during formatting: decimal clause can only be used on integers, was given string
             | '%d and %s'.format([self.s, self.n])
             | ........................^
            '%d'.format([]) → ERROR: <input>:1:12: index 0 out of range
             | '%d'.format([])
             | ...........^
            '%d'.format([1, 2]) → ERROR: <input>:1:12: too many arguments supplied to string.format (expected 1, got 2)
             | '%d'.format([1, 2])
             | ...........^
            '%z'.format([1]) → ERROR: <input>:1:12: could not parse formatting clause: unrecognized formatting clause "z"
             | '%z'.format([1])
             | ...........^
            '%s %%'.format([self.o]) → ERROR: <input>:1:21: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given self.o
             | '%s %%'.format([self.o])
             | ....................^
            '%.3f'.format([1.5]) → string
            [1, 2].sum() == 3 && self.ls.isSorted() → bool
            quantity('1Ki').isGreaterThan(quantity(self.s)) → bool
            sets.contains(self.l, [1]) → bool
            ip.isCanonical(self.s) → bool
            oldSelf.?n.orValue(1) == optional.of(1).value() → bool
            self.l.sortBy(x, -x)[0] → int
            self.s.reverse() → ERROR: <input>:1:15: found no matching overload for 'reverse' applied to 'string.()'
             | self.s.reverse()
             | ..............^"#]],
    );
}
