//! Expressions and objects by chance.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use setpoint_cel::decl::{DeclKind, DeclType};
use setpoint_cel::library::{Library, Overload};
use setpoint_cel::types::{Param, Type};

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    /// True in so many of a thousand cases.
    fn chance(&mut self, permille: usize) -> bool {
        self.below(1000) < permille
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Texts that functions parse, by the function.
const TEXTS: &[(&[&str], &[&str])] = &[
    (
        &["quantity", "isQuantity"],
        &["1", "1.5Gi", "200m", "-3k", "1e3", "0", "10.5", "1E", "9999999999999999999", "5n", "x", ""],
    ),
    (
        &["url", "isURL"],
        &[
            "https://a.example:80/path?x=1&y=2&x=3",
            "http://[::1]:8080/a%20b",
            "https://user:pw@h/",
            "/absolute/path?q",
            "relative",
            "://",
            "http://h?a=%zz",
            "",
        ],
    ),
    (
        &["ip", "isIP", "ip.isCanonical", "containsIP", "family"],
        &[
            "192.168.0.1", "::1", "2001:DB8::1", "127.0.0.1", "0.0.0.0", "fe80::1", "224.0.0.5", "ff02::1",
            "::ffff:1.2.3.4", "fe80::1%eth0", "1.2.3", "010.1.1.1", "",
        ],
    ),
    (
        &["cidr", "isCIDR", "containsCIDR"],
        &["192.168.0.0/24", "10.0.0.1/8", "::/0", "2001:db8::/32", "1.2.3.4/33", "1.2.3.4", "::ffff:1.2.3.0/120"],
    ),
    (
        &["semver", "isSemver"],
        &["1.2.3", "1.2.3-alpha.1", "1.2.3+build", "v1.0", "01.2.3", "1.2", "0.0.0", "1.2.3-", "99999999999999999999.0.0"],
    ),
    (&["format.named"], &["dns1123Label", "uuid", "date", "labelValue", "byte", "uri", "qualifiedName", "none"]),
    (
        &["matches", "find", "findAll"],
        &["a", "[a-z]+", "^$", "(a|b)*c", "\\\\d{2,}", "[", "(?i)RED", ".*", "é", "(a", "a{1001}", "\\\\bx", "x*"],
    ),
    (
        &["timestamp"],
        &[
            "2023-01-02T03:04:05Z", "1969-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z", "2024-02-29T12:00:00+05:30", "2023-02-30T00:00:00Z", "2023-01-02", "x",
        ],
    ),
    (&["duration"], &["1h", "1m30.5s", "-2h", "0", "100ms", "1ns", "9223372036s", "1d", "", "300000h", "1.s"]),
    (
        &[
            "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours",
            "getMinutes", "getSeconds", "getMilliseconds",
        ],
        &["UTC", "Europe/Berlin", "+02:00", "-11:30", "America/New_York", "5", "Nowhere/City", ""],
    ),
    (
        &["format"],
        &["%s and %d", "%.3f", "%e", "%x", "%X", "%o", "%b", "%%", "%s", "%d", "%", "%q", "%.1e", "%f %s"],
    ),
    (&["int", "uint"], &["1", "-5", "0", "9223372036854775807", "9223372036854775808", "x", "1.5", "+3", ""]),
    (&["double"], &["1", "-0.5", "1e300", "inf", "NaN", "Infinity", "x", "1e999", "0x1p4", ""]),
    (&["bool"], &["true", "false", "T", "1", "0", "True", "yes", "TRUE", ""]),
    (&["check"], &["get", "list", "break", ""]),
    (&["fieldSelector"], &["metadata.name=x", "a!=b,c=d", "=", "a in (b)", ""]),
    (&["labelSelector"], &["a=b", "a in (b,c)", "!a", "a==b,c!=d", "in (", ""]),
    (&["path"], &["/healthz", "/a/b", ""]),
    (&["lastIndexOf", "indexOf", "split", "replace", "contains", "startsWith", "endsWith"], &["a", "", "é", "ab", ",", "aa"]),
];

const WORDS: &[&str] = &[
    "", "a", "b", "red", "green", "Blue", "abc", "aXbXc", "1,2,,3", "é", "日本", "😀 x", " pad ", "a.b-c", "10", "true",
    "1.5", "aaaa", "name",
];

/// Functions that the language writes otherwise: between operands, before them, or in brackets.
const INFIX: &[(&str, &str)] = &[
    ("_+_", "+"), ("_-_", "-"), ("_*_", "*"), ("_/_", "/"), ("_%_", "%"), ("_<_", "<"), ("_<=_", "<="), ("_>_", ">"),
    ("_>=_", ">="), ("_==_", "=="), ("_!=_", "!="), ("_&&_", "&&"), ("_||_", "||"), ("@in", "in"),
];

/// Makes expressions.
pub(super) struct Generator {
    pub(super) random: Random,
    overloads: Vec<&'static Overload>,
    /// What can be reached from `self`, by type.
    paths: BTreeMap<String, Vec<String>>,
    /// Names of loops with their types.
    locals: Vec<(String, Type)>,
    names: usize,
}

impl Generator {
    pub(super) fn new(seed: u64, root: &DeclType) -> Generator {
        let mut overloads: Vec<_> = Library::kubernetes()
            .overloads()
            .filter(|overload| {
                let name = overload.function;
                name == "@in" || !name.contains('@')
            })
            .collect();
        overloads.sort_by_key(|overload| (overload.function, overload.id));
        let mut generator = Generator {
            random: Random(seed),
            overloads,
            paths: BTreeMap::new(),
            locals: Vec::new(),
            names: 0,
        };
        generator.reach("self".to_owned(), root, 0);
        generator
    }

    fn reach(&mut self, path: String, decl: &DeclType, depth: usize) {
        if depth > 4 {
            return;
        }
        match &decl.kind {
            DeclKind::Object(object) => {
                for (name, field) in &object.fields {
                    self.reach(format!("{path}.{name}"), &field.decl, depth + 1);
                }
            }
            DeclKind::List { items, .. } => self.reach(format!("{path}[0]"), items, depth + 1),
            DeclKind::Map { values } => {
                self.reach(format!("{path}['a']"), values, depth + 1);
                self.reach(format!("{path}.b"), values, depth + 1);
            }
            _ => {}
        }
        self.paths.entry(decl.ty.to_string()).or_default().push(path);
    }

    /// An expression.
    pub(super) fn case(&mut self) -> String {
        self.locals.clear();
        self.names = 0;
        let depth = 1 + self.random.below(4);
        let ty = self.some_type(2);
        let text = self.of_type(&ty, depth);
        match self.random.chance(15) {
            true => self.damaged(&text),
            false => text,
        }
    }

    /// The text with a character less, more or changed.
    fn damaged(&mut self, text: &str) -> String {
        let mut characters: Vec<char> = text.chars().collect();
        let at = self.random.below(characters.len());
        let other = *self.random.of(&['(', ')', '.', '\'', '"', '1', 'a', ' ', '?', '[', '}', '-', '!', ',', '\\']);
        match self.random.below(3) {
            0 => _ = characters.remove(at),
            1 => characters.insert(at, other),
            _ => characters[at] = other,
        }
        characters.into_iter().collect()
    }

    fn some_type(&mut self, depth: usize) -> Type {
        let scalars = [
            Type::Bool, Type::Int, Type::Uint, Type::Double, Type::String, Type::Bytes, Type::Timestamp,
            Type::Duration, Type::Dyn,
        ];
        match self.random.below(16) {
            0..=3 => Type::Bool,
            4 if depth > 0 => Type::list(self.some_type(depth - 1)),
            5 if depth > 0 => {
                let key = self.random.of(&[Type::String, Type::String, Type::Int, Type::Bool, Type::Uint]).clone();
                Type::map(key, self.some_type(depth - 1))
            }
            6 if depth > 0 => Type::optional(self.some_type(depth - 1)),
            7 => {
                let opaque = [
                    Type::QUANTITY, Type::URL, Type::SEMVER, Type::FORMAT, Type::IP, Type::CIDR, Type::DECISION,
                    Type::RESOURCE_CHECK, Type::Null, Type::type_of(Type::Int),
                ];
                self.random.of(&opaque).clone()
            }
            _ => self.random.of(&scalars).clone(),
        }
    }

    fn of_type(&mut self, ty: &Type, depth: usize) -> String {
        if self.random.chance(8) {
            // Of another type.
            let ty = self.some_type(1);
            return self.right(&ty, depth);
        }
        match self.random.chance(25) {
            true => format!("dyn({})", self.right(ty, depth)),
            false => self.right(ty, depth),
        }
    }

    fn right(&mut self, ty: &Type, depth: usize) -> String {
        if *ty == Type::Dyn {
            let ty = self.some_type(1);
            let text = if ty == Type::Dyn { "self.either".to_owned() } else { self.of_type(&ty, depth) };
            return format!("dyn({text})");
        }
        let shown = ty.to_string();
        let mut names: Vec<String> =
            self.locals.iter().filter(|(_, of)| of == ty).map(|(name, _)| name.clone()).collect();
        if !names.is_empty() && self.random.chance(300) {
            return names.remove(self.random.below(names.len()));
        }
        if self.random.chance(if depth == 0 { 450 } else { 120 })
            && let Some(paths) = self.paths.get(&shown)
        {
            return self.random.of(paths).clone();
        }
        if depth == 0 {
            return self.leaf(ty, &[]);
        }
        match self.random.below(20) {
            0 => {
                let (then, otherwise) = (self.of_type(ty, depth - 1), self.of_type(ty, depth - 1));
                let condition = self.of_type(&Type::Bool, depth - 1);
                return format!("({condition} ? {then} : {otherwise})");
            }
            1..=4 => {
                if let Some(text) = self.makro(ty, depth - 1) {
                    return text;
                }
            }
            5 => return self.leaf(ty, &[]),
            6 | 7 => {
                if let Some(text) = self.literal(ty, depth - 1) {
                    return text;
                }
            }
            _ => {}
        }
        self.call(ty, depth - 1)
    }

    /// A call of a function that has such a result.
    fn call(&mut self, ty: &Type, depth: usize) -> String {
        let fitting: Vec<(&'static Overload, BTreeMap<&'static str, Type>)> = self
            .overloads
            .iter()
            .filter_map(|overload| {
                let mut bound = BTreeMap::new();
                binds(&overload.result, ty, &mut bound).then_some((*overload, bound))
            })
            .collect();
        if fitting.is_empty() {
            return self.leaf(ty, &[]);
        }
        // A function first, so that those with many overloads are not most of all.
        let mut functions: Vec<&str> = fitting.iter().map(|(overload, _)| overload.function).collect();
        functions.dedup();
        let function = *self.random.of(&functions);
        let fitting: Vec<_> =
            fitting.into_iter().filter(|(overload, _)| overload.function == function).collect();
        let (overload, mut bound) = self.random.of(&fitting).clone();
        let args: Vec<String> = overload
            .args
            .iter()
            .enumerate()
            .map(|(at, arg)| {
                let arg = self.filled(arg, &mut bound);
                let texts = texts(function);
                let hinted = arg == Type::String && !texts.is_empty() && (at > 0 || !overload.member);
                if function == "lists.range" {
                    // cel-go makes lists of any length before it counts their cost.
                    return self.random.of(&["0", "3", "-1", "self.wholes.size()"]).to_string();
                }
                match hinted && self.random.chance(750) {
                    true => self.leaf(&arg, texts),
                    false if function == "format" && at == 1 => self.literal(&arg, depth).unwrap_or_default(),
                    false => self.of_type(&arg, depth),
                }
            })
            .collect();
        if let Some((_, operator)) = INFIX.iter().find(|(name, _)| *name == function) {
            return format!("({} {operator} {})", args[0], args[1]);
        }
        match function {
            "!_" => format!("!{}", args[0]),
            "-_" => format!("-{}", args[0]),
            "_[_]" => format!("{}[{}]", args[0], args[1]),
            "_[?_]" => format!("{}[?{}]", args[0], args[1]),
            "_?._" => format!("{}.?b", args[0]),
            "_?_:_" => format!("({} ? {} : {})", args[0], args[1], args[2]),
            name if overload.member => format!("{}.{name}({})", args[0], args[1..].join(", ")),
            name => format!("{name}({})", args.join(", ")),
        }
    }

    /// The type with its parameters replaced.
    fn filled(&mut self, ty: &Type, bound: &mut BTreeMap<&'static str, Type>) -> Type {
        match ty {
            Type::Param(Param::Named(name)) => {
                let some = match self.random.chance(800) {
                    true => self.random.of(&[Type::Int, Type::String, Type::Bool, Type::Double]).clone(),
                    false => self.some_type(1),
                };
                bound.entry(name).or_insert(some).clone()
            }
            Type::List(element) => Type::list(self.filled(element, bound)),
            Type::Map(key, value) => {
                let key = match self.filled(key, bound) {
                    key @ (Type::Int | Type::Uint | Type::Bool | Type::String) => key,
                    _ => Type::String,
                };
                Type::map(key, self.filled(value, bound))
            }
            Type::Optional(inner) => Type::optional(self.filled(inner, bound)),
            ty => ty.clone(),
        }
    }

    fn local(&mut self, ty: Type) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.locals.push((name.clone(), ty));
        name
    }

    fn makro(&mut self, ty: &Type, depth: usize) -> Option<String> {
        let element = self.random.of(&[Type::Int, Type::String, Type::Double, Type::Bool]).clone();
        let known = self.locals.len();
        let text = match ty {
            Type::Bool => match self.random.below(8) {
                0 => {
                    let fields: Vec<&String> =
                        self.paths.values().flatten().filter(|path| !path.ends_with(']')).collect();
                    let path = *self.random.of(&fields);
                    match self.random.chance(100) {
                        true => format!("has(dyn({path}).b)"),
                        false => format!("has({path})"),
                    }
                }
                1 | 2 => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let (i, v) = (self.local(Type::Int), self.local(element));
                    let name = *self.random.of(&["all", "exists", "existsOne", "exists_one"]);
                    format!("{range}.{name}({i}, {v}, {})", self.of_type(&Type::Bool, depth))
                }
                3 => {
                    let range = self.of_type(&Type::map(Type::String, element.clone()), depth);
                    let (i, v) = (self.local(Type::String), self.local(element));
                    let name = *self.random.of(&["all", "exists", "existsOne"]);
                    format!("{range}.{name}({i}, {v}, {})", self.of_type(&Type::Bool, depth))
                }
                4 => {
                    let range = self.of_type(&Type::map(element.clone(), Type::Int), depth);
                    let v = self.local(element);
                    let name = *self.random.of(&["all", "exists", "exists_one"]);
                    format!("{range}.{name}({v}, {})", self.of_type(&Type::Bool, depth))
                }
                _ => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let v = self.local(element);
                    let name = *self.random.of(&["all", "exists", "exists_one", "all", "existsOne"]);
                    format!("{range}.{name}({v}, {})", self.of_type(&Type::Bool, depth))
                }
            },
            Type::List(of) => match self.random.below(6) {
                0 => {
                    let range = self.of_type(ty, depth);
                    let v = self.local((**of).clone());
                    format!("{range}.filter({v}, {})", self.of_type(&Type::Bool, depth))
                }
                1 => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let v = self.local(element);
                    format!("{range}.map({v}, {})", self.of_type(of, depth))
                }
                2 => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let v = self.local(element);
                    let condition = self.of_type(&Type::Bool, depth);
                    format!("{range}.map({v}, {condition}, {})", self.of_type(of, depth))
                }
                3 => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let (i, v) = (self.local(Type::Int), self.local(element));
                    format!("{range}.transformList({i}, {v}, {})", self.of_type(of, depth))
                }
                4 => {
                    let range = self.of_type(&Type::map(Type::String, element.clone()), depth);
                    let (i, v) = (self.local(Type::String), self.local(element));
                    let condition = self.of_type(&Type::Bool, depth);
                    // Maps have no order.
                    format!("{range}.transformList({i}, {v}, {condition}, {}).size()", self.of_type(of, depth))
                }
                _ => {
                    let range = self.of_type(ty, depth);
                    let v = self.local((**of).clone());
                    format!("{range}.sortBy({v}, {})", self.of_type(&Type::Int, depth))
                }
            },
            Type::Map(key, of) => match self.random.below(3) {
                0 => {
                    let range = self.of_type(&Type::map((**key).clone(), element.clone()), depth);
                    let (i, v) = (self.local((**key).clone()), self.local(element));
                    format!("{range}.transformMap({i}, {v}, {})", self.of_type(of, depth))
                }
                1 => {
                    let range = self.of_type(&Type::map((**key).clone(), element.clone()), depth);
                    let (i, v) = (self.local((**key).clone()), self.local(element));
                    let condition = self.of_type(&Type::Bool, depth);
                    format!("{range}.transformMap({i}, {v}, {condition}, {})", self.of_type(of, depth))
                }
                _ => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let (i, v) = (self.local(Type::Int), self.local(element));
                    let entry = format!("{{{}: {}}}", self.of_type(key, depth), self.of_type(of, depth));
                    format!("{range}.transformMapEntry({i}, {v}, {entry})")
                }
            },
            Type::Optional(of) => {
                let inner = self.of_type(&Type::optional(element.clone()), depth);
                let v = self.local(element);
                match self.random.chance(500) {
                    true => format!("{inner}.optMap({v}, {})", self.of_type(of, depth)),
                    false => format!("{inner}.optFlatMap({v}, {})", self.of_type(ty, depth)),
                }
            }
            _ => return None,
        };
        self.locals.truncate(known);
        Some(text)
    }

    /// A list or a map by its elements.
    fn literal(&mut self, ty: &Type, depth: usize) -> Option<String> {
        let size = self.random.below(4);
        match ty {
            Type::List(of) => {
                let mut items = Vec::new();
                for _ in 0..size {
                    items.push(match self.random.chance(40) {
                        true => format!("?{}", self.of_type(&Type::optional((**of).clone()), depth)),
                        false => self.of_type(of, depth),
                    });
                }
                Some(format!("[{}]", items.join(", ")))
            }
            Type::Map(key, of) => {
                let mut entries = Vec::new();
                for _ in 0..size {
                    let key = self.of_type(key, depth);
                    entries.push(match self.random.chance(40) {
                        true => format!("?{key}: {}", self.of_type(&Type::optional((**of).clone()), depth)),
                        false => format!("{key}: {}", self.of_type(of, depth)),
                    });
                }
                Some(format!("{{{}}}", entries.join(", ")))
            }
            _ => None,
        }
    }

    /// An expression without variables, or one of few steps.
    fn leaf(&mut self, ty: &Type, texts: &[&str]) -> String {
        let random = &mut self.random;
        match ty {
            Type::Bool => (*random.of(&["true", "false"])).to_owned(),
            Type::Null => "null".to_owned(),
            Type::Int => (*random.of(&[
                "0", "1", "2", "-1", "3", "7", "10", "100", "9223372036854775807", "-9223372036854775808", "0x1F",
                "1672628645", "253402300800",
            ]))
            .to_owned(),
            Type::Uint => (*random.of(&["0u", "1u", "2u", "18446744073709551615u", "0xFFu"])).to_owned(),
            Type::Double => (*random.of(&[
                "0.0", "1.0", "-1.5", "2.5", "1e308", "3.0", ".5", "1e-5", "9223372036854775807.0", "1e19", "-0.0",
                "double('NaN')", "double('Infinity')",
            ]))
            .to_owned(),
            Type::String => {
                let text = *random.of(if texts.is_empty() { WORDS } else { texts });
                match random.below(8) {
                    0 => format!("\"{text}\""),
                    1 if !text.contains('\\') => format!("r'{text}'"),
                    _ => format!("'{text}'"),
                }
            }
            Type::Bytes => (*random.of(&["b''", "b'abc'", "b'\\xff\\x00'", "b'é'", "bytes('x')"])).to_owned(),
            Type::Timestamp => (*random.of(&[
                "timestamp('2023-01-02T03:04:05Z')", "timestamp(0)", "timestamp('9999-12-31T23:59:59.999999999Z')",
                "timestamp('0001-01-01T00:00:00Z')", "timestamp('2024-02-29T23:30:00-08:00')",
            ]))
            .to_owned(),
            Type::Duration => (*random.of(&[
                "duration('1h')", "duration('-90s')", "duration('1.5ms')", "duration('0')", "duration('2562047h')",
            ]))
            .to_owned(),
            Type::List(_) => self.literal(ty, 0).unwrap_or_default(),
            Type::Map(..) => self.literal(ty, 0).unwrap_or_default(),
            Type::Optional(of) => match random.below(3) {
                0 => "optional.none()".to_owned(),
                1 => format!("optional.ofNonZeroValue({})", self.of_type(of, 0)),
                _ => format!("optional.of({})", self.of_type(of, 0)),
            },
            Type::Type(_) => (*random.of(&[
                "int", "string", "type(1)", "type([1])", "list", "map", "type(self.parts)", "type(null)", "bytes",
                "type(duration('1s'))", "type(quantity('1'))", "type(self)", "type(type(1))", "double", "uint",
            ]))
            .to_owned(),
            Type::Opaque(_) => {
                let text = |function| {
                    let texts = TEXTS.iter().find(|(functions, _)| functions.contains(&function));
                    texts.map_or(WORDS, |(_, texts)| *texts)
                };
                let parsed = [
                    (Type::QUANTITY, "quantity"), (Type::URL, "url"), (Type::SEMVER, "semver"), (Type::IP, "ip"),
                    (Type::CIDR, "cidr"),
                ];
                match parsed.iter().find(|(of, _)| of == ty) {
                    Some((_, function)) => format!("{function}('{}')", random.of(text(*function))),
                    None if *ty == Type::FORMAT => "format.dns1123Label()".to_owned(),
                    None if *ty == Type::AUTHORIZER => "authorizer".to_owned(),
                    None if *ty == Type::PATH_CHECK => "authorizer.path('/healthz')".to_owned(),
                    None if *ty == Type::GROUP_CHECK => "authorizer.group('apps')".to_owned(),
                    None if *ty == Type::RESOURCE_CHECK => "authorizer.group('').resource('pods')".to_owned(),
                    None => format!("authorizer.path('/x').check('{}')", random.of(text("check"))),
                }
            }
            _ => "self".to_owned(),
        }
    }

    /// An object of the schema. Some properties are absent.
    pub(super) fn object(&mut self, schema: &Json) -> Json {
        let random = &mut self.random;
        let word = |random: &mut Random, limit: usize| {
            let words: Vec<_> = WORDS.iter().filter(|word| word.chars().count() <= limit).collect();
            json!(random.of(&words))
        };
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return if random.chance(500) { json!(random.below(9)) } else { word(random, 9) };
        }
        let limit = |name: &str| schema.get(name).and_then(Json::as_u64).map_or(5, |limit| limit as usize);
        match (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str()) {
            ("boolean", _) => json!(random.chance(500)),
            ("integer", _) => json!(*random.of(&[0i64, 1, 2, -3, 7, 100, i64::MAX, i64::MIN])),
            ("number", _) => match random.below(5) {
                0 => json!(3),
                _ => json!(*random.of(&[0.0, 1.5, -2.25, 1e300, 0.1])),
            },
            (_, Some("byte")) => json!(*random.of(&["", "YWJj", "/w==", "aGVsbG8="])),
            (_, Some("date-time")) => {
                json!(*random.of(&["2023-01-02T03:04:05Z", "2020-02-29T00:00:00.5+01:00", "1960-01-01T00:00:00Z"]))
            }
            (_, Some("date")) => json!(*random.of(&["2023-01-02", "1999-12-31"])),
            (_, Some("duration")) => json!(*random.of(&["1h", "30s", "1m0.5s", "0s"])),
            ("string", _) => match schema.get("enum").and_then(Json::as_array) {
                Some(values) => random.of(values).clone(),
                None => word(random, limit("maxLength").max(5)),
            },
            ("array", _) => {
                let size = random.below(limit("maxItems").min(5));
                let mut items: Vec<Json> = Vec::new();
                for at in 0..size {
                    let mut item = self.object(&schema["items"]);
                    match schema["x-kubernetes-list-type"].as_str() {
                        Some("map") => item["name"] = json!(format!("n{at}")),
                        Some("set") if items.contains(&item) => continue,
                        _ => {}
                    }
                    items.push(item);
                }
                Json::Array(items)
            }
            _ => {
                let mut object = Map::new();
                if let Some(values) = schema.get("additionalProperties") {
                    for key in ["a", "b", "red", "x y"] {
                        if self.random.chance(600) {
                            object.insert(key.to_owned(), self.object(values));
                        }
                    }
                }
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let required = schema["required"].as_array().into_iter().flatten();
                    if required.into_iter().any(|required| required == name) || self.random.chance(850) {
                        object.insert(name.clone(), self.object(property));
                    }
                }
                Json::Object(object)
            }
        }
    }
}

/// The texts that a function parses.
fn texts(function: &str) -> &'static [&'static str] {
    TEXTS.iter().find(|(functions, _)| functions.contains(&function)).map_or(&[], |(_, texts)| texts)
}

/// Whether a type is an instance of a pattern, and of which parameters.
fn binds(pattern: &Type, ty: &Type, bound: &mut BTreeMap<&'static str, Type>) -> bool {
    match (pattern, ty) {
        (Type::Param(Param::Named(name)), ty) => match bound.get(name) {
            Some(known) => known == ty,
            None => {
                bound.insert(name, ty.clone());
                true
            }
        },
        (Type::List(pattern), Type::List(ty)) | (Type::Optional(pattern), Type::Optional(ty)) => {
            binds(pattern, ty, bound)
        }
        (Type::Map(key, value), Type::Map(of, to)) => {
            binds(key, of, bound) && binds(value, to, bound)
        }
        (pattern, ty) => pattern == ty,
    }
}
