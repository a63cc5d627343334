//! Expressions and objects by chance.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
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
    pub(super) fn chance(&mut self, permille: usize) -> bool {
        self.below(1000) < permille
    }

    pub(super) fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Texts that functions parse.
static TEXTS: LazyLock<Vec<Texts>> =
    LazyLock::new(|| serde_json::from_str(include_str!("texts.json")).expect("the texts are JSON"));

#[derive(Deserialize)]
struct Texts {
    functions: Vec<String>,
    texts: Vec<String>,
}

pub(super) const WORDS: &[&str] = &[
    "", "a", "b", "red", "green", "Blue", "abc", "aXbXc", "1,2,,3", "é", "日本", "😀 x", " pad ",
    "a.b-c", "10", "true", "1.5", "aaaa", "name",
];

/// Functions that the language writes otherwise: between operands, before them, or in brackets.
const INFIX: &[(&str, &str)] = &[
    ("_+_", "+"),
    ("_-_", "-"),
    ("_*_", "*"),
    ("_/_", "/"),
    ("_%_", "%"),
    ("_<_", "<"),
    ("_<=_", "<="),
    ("_>_", ">"),
    ("_>=_", ">="),
    ("_==_", "=="),
    ("_!=_", "!="),
    ("_&&_", "&&"),
    ("_||_", "||"),
    ("@in", "in"),
];

/// Makes expressions.
pub(super) struct Generator {
    pub(super) random: Random,
    overloads: Vec<&'static Overload>,
    /// What can be reached from `self`, by type.
    pub(super) paths: BTreeMap<String, Vec<String>>,
    /// Names of loops with their types.
    pub(super) locals: Vec<(String, Type)>,
    pub(super) names: usize,
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
        let other = *self
            .random
            .of(&['(', ')', '.', '\'', '"', '1', 'a', ' ', '?', '[', '}', '-', '!', ',', '\\']);
        match self.random.below(3) {
            0 => _ = characters.remove(at),
            1 => characters.insert(at, other),
            _ => characters[at] = other,
        }
        characters.into_iter().collect()
    }

    fn some_type(&mut self, depth: usize) -> Type {
        let scalars = [
            Type::Bool,
            Type::Int,
            Type::Uint,
            Type::Double,
            Type::String,
            Type::Bytes,
            Type::Timestamp,
            Type::Duration,
            Type::Dyn,
        ];
        match self.random.below(16) {
            0..=3 => Type::Bool,
            4 if depth > 0 => Type::list(self.some_type(depth - 1)),
            5 if depth > 0 => {
                let key = self
                    .random
                    .of(&[Type::String, Type::String, Type::Int, Type::Bool, Type::Uint])
                    .clone();
                Type::map(key, self.some_type(depth - 1))
            }
            6 if depth > 0 => Type::optional(self.some_type(depth - 1)),
            7 => {
                let opaque = [
                    Type::QUANTITY,
                    Type::URL,
                    Type::SEMVER,
                    Type::FORMAT,
                    Type::IP,
                    Type::CIDR,
                    Type::DECISION,
                    Type::RESOURCE_CHECK,
                    Type::Null,
                    Type::type_of(Type::Int),
                ];
                self.random.of(&opaque).clone()
            }
            _ => self.random.of(&scalars).clone(),
        }
    }

    pub(super) fn of_type(&mut self, ty: &Type, depth: usize) -> String {
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
            let text =
                if ty == Type::Dyn { "self.either".to_owned() } else { self.of_type(&ty, depth) };
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
        let mut functions: Vec<&str> =
            fitting.iter().map(|(overload, _)| overload.function).collect();
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
                let texts = texts_of(function);
                let hinted =
                    arg == Type::String && !texts.is_empty() && (at > 0 || !overload.member);
                if function == "lists.range" {
                    // cel-go makes lists of any length before it counts their cost.
                    return self.random.of(&["0", "3", "-1", "self.wholes.size()"]).to_string();
                }
                match hinted && self.random.chance(750) {
                    true => self.leaf(&arg, &texts),
                    false if function == "format" && at == 1 => {
                        self.literal(&arg, depth).unwrap_or_default()
                    }
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
                    true => {
                        self.random.of(&[Type::Int, Type::String, Type::Bool, Type::Double]).clone()
                    }
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

    /// A list or a map by its elements.
    fn literal(&mut self, ty: &Type, depth: usize) -> Option<String> {
        let size = self.random.below(4);
        match ty {
            Type::List(of) => {
                let mut items = Vec::new();
                for _ in 0..size {
                    items.push(match self.random.chance(40) {
                        true => {
                            format!("?{}", self.of_type(&Type::optional((**of).clone()), depth))
                        }
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
                        true => format!(
                            "?{key}: {}",
                            self.of_type(&Type::optional((**of).clone()), depth)
                        ),
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
                "0",
                "1",
                "2",
                "-1",
                "3",
                "7",
                "10",
                "100",
                "9223372036854775807",
                "-9223372036854775808",
                "0x1F",
                "1672628645",
                "253402300800",
            ]))
            .to_owned(),
            Type::Uint => {
                (*random.of(&["0u", "1u", "2u", "18446744073709551615u", "0xFFu"])).to_owned()
            }
            Type::Double => (*random.of(&[
                "0.0",
                "1.0",
                "-1.5",
                "2.5",
                "1e308",
                "3.0",
                ".5",
                "1e-5",
                "9223372036854775807.0",
                "1e19",
                "-0.0",
                "double('NaN')",
                "double('Infinity')",
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
            Type::Bytes => {
                (*random.of(&["b''", "b'abc'", "b'\\xff\\x00'", "b'é'", "bytes('x')"])).to_owned()
            }
            Type::Timestamp => (*random.of(&[
                "timestamp('2023-01-02T03:04:05Z')",
                "timestamp(0)",
                "timestamp('9999-12-31T23:59:59.999999999Z')",
                "timestamp('0001-01-01T00:00:00Z')",
                "timestamp('2024-02-29T23:30:00-08:00')",
            ]))
            .to_owned(),
            Type::Duration => (*random.of(&[
                "duration('1h')",
                "duration('-90s')",
                "duration('1.5ms')",
                "duration('0')",
                "duration('2562047h')",
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
                "int",
                "string",
                "type(1)",
                "type([1])",
                "list",
                "map",
                "type(self.parts)",
                "type(null)",
                "bytes",
                "type(duration('1s'))",
                "type(quantity('1'))",
                "type(self)",
                "type(type(1))",
                "double",
                "uint",
            ]))
            .to_owned(),
            Type::Opaque(_) => {
                let parsed = [
                    (Type::QUANTITY, "quantity"),
                    (Type::URL, "url"),
                    (Type::SEMVER, "semver"),
                    (Type::IP, "ip"),
                    (Type::CIDR, "cidr"),
                ];
                match parsed.iter().find(|(of, _)| of == ty) {
                    Some((_, function)) => {
                        format!("{function}('{}')", random.of(&texts_of(function)))
                    }
                    None if *ty == Type::FORMAT => "format.dns1123Label()".to_owned(),
                    None if *ty == Type::AUTHORIZER => "authorizer".to_owned(),
                    None if *ty == Type::PATH_CHECK => "authorizer.path('/healthz')".to_owned(),
                    None if *ty == Type::GROUP_CHECK => "authorizer.group('apps')".to_owned(),
                    None if *ty == Type::RESOURCE_CHECK => {
                        "authorizer.group('').resource('pods')".to_owned()
                    }
                    None => {
                        format!("authorizer.path('/x').check('{}')", random.of(&texts_of("check")))
                    }
                }
            }
            _ => "self".to_owned(),
        }
    }
}

/// The texts that a function parses.
fn texts_of(function: &str) -> Vec<&'static str> {
    let row = TEXTS.iter().find(|row| row.functions.iter().any(|name| name == function));
    row.into_iter().flat_map(|row| &row.texts).map(String::as_str).collect()
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
