//! From text to tree.
//!
//! The grammar is the `cel` crate's, which leaves macros alone here: they are expanded by
//! [`macros`]. Nothing else of that crate is used, and its tree ends in this module.

use std::sync::Arc;

use cel::common::ast as parsed;

use crate::ast::{Ast, Expr, ExprKind, FieldInit, Literal, MapEntry, Position, Source};
use crate::issue::{Issue, Issues};
use crate::macros::{self, Macros};

/// The most code points of an expression: 100,000, cel-go's limit.
pub const CODE_POINTS_MAX: usize = 100_000;

/// How deep brackets nest at most.
///
/// cel-go's limit is 250 levels of its grammar. With this limit and [`CHAIN_MAX`] parser, checker
/// and evaluator stay within the 2 MiB of stack that threads have, in debug builds too.
pub const DEPTH_MAX: usize = 60;

/// How many operators, selections and calls stand around each other at most, those around the
/// brackets counted too. Operands of `&&` and `||` stand beside each other.
pub const CHAIN_MAX: usize = 150;

/// The deepest tree: chains, brackets, and what macros put around their operands.
const TREE_DEPTH_MAX: usize = CHAIN_MAX + 2 * DEPTH_MAX;

/// The most nodes of a tree before macros that copy a part of it are refused.
const NODES_MAX: usize = 50_000;

/// The most faults of one text that are looked for.
const FAULTS_MAX: u32 = 30;

/// Reads an expression and expands its macros.
///
/// # Errors
///
/// Syntax errors, wrong use of macros, a text longer than [`CODE_POINTS_MAX`] or nested deeper
/// than [`DEPTH_MAX`] and [`CHAIN_MAX`] allow.
pub fn parse(text: &str, macros: &Macros) -> Result<Ast, Issues> {
    let mut source = Source::new(text);
    let refuse =
        |source: &Source, position, message| Issues::new(source, vec![Issue { position, message }]);
    // A text has at most as many code points as bytes.
    let size = if text.len() > CODE_POINTS_MAX { text.chars().count() } else { 0 };
    if size > CODE_POINTS_MAX {
        let message = format!(
            "expression code point size exceeds limit: size: {size}, limit {CODE_POINTS_MAX}"
        );
        return Err(refuse(&source, Position::NOWHERE, message));
    }
    if let Some(offset) = too_deep(text) {
        return Err(refuse(&source, source.position_of(offset), TOO_DEEP.to_owned()));
    }
    let parser = cel::Env::default().parser().error_recovery_limit(FAULTS_MAX);
    let parser = parser.max_recursion_depth(TREE_DEPTH_MAX as u16);
    let (root, info) = parser.parse_with_source_info(text).map_err(|faults| {
        let issues = faults.errors.into_iter().map(|fault| issue(&source, &fault)).collect();
        Issues::new(&source, issues)
    })?;
    let mut builder = Builder {
        source: &mut source,
        text,
        info: &info,
        macros,
        issues: Vec::new(),
        read: (0, 0),
    };
    let root = builder.expr(root, 0);
    let issues = std::mem::take(&mut builder.issues);
    if !issues.is_empty() {
        return Err(Issues::new(&source, issues));
    }
    Ok(Ast { root, source })
}

fn issue(source: &Source, fault: &cel::ParseError) -> Issue {
    // Lines and columns from 1. A fault of the parser itself has none.
    let line = u32::try_from(fault.pos.0).unwrap_or(1).max(1);
    let column = u32::try_from(fault.pos.1).unwrap_or(1).max(1) - 1;
    let longest = source.line(line).map_or(0, |line| line.chars().count());
    let column = column.min(u32::try_from(longest).unwrap_or(u32::MAX));
    let position = Position { line, column };
    Issue { position, message: fault.msg.clone() }
}

/// The error of an expression that nests too deep: cel-go's words and number.
const TOO_DEEP: &str = "expression recursion limit exceeded: 250";

/// The place where brackets or operators nest too deep, without parsing.
///
/// The stack of the parser is not bounded by its own limit alone, so this comes before it. It knows
/// texts and comments, and otherwise only signs: `in` is the one operator it does not see, and `==`
/// counts twice.
fn too_deep(text: &str) -> Option<u32> {
    // Signs on the way to here, for each open bracket.
    let mut open = vec![0usize];
    let mut signs = 0usize;
    let mut chars = text.chars().enumerate().peekable();
    let mut before = ' ';
    while let Some((offset, c)) = chars.next() {
        match c {
            '"' | '\'' => skip_text(&mut chars, c, matches!(before, 'r' | 'R')),
            '/' if chars.peek().is_some_and(|(_, next)| *next == '/') => {
                while chars.peek().is_some_and(|(_, next)| *next != '\n') {
                    chars.next();
                }
            }
            '(' | '[' | '{' => {
                signs += 1;
                if let Some(last) = open.last_mut() {
                    *last += 1;
                }
                open.push(0);
            }
            ')' | ']' | '}' if open.len() > 1 => {
                signs -= open.pop().unwrap_or(0);
            }
            // Operands of these stand beside each other.
            '&' | '|' | ',' => {
                if let Some(last) = open.last_mut() {
                    signs -= std::mem::take(last);
                }
            }
            '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '?' | ':' => {
                signs += 1;
                if let Some(last) = open.last_mut() {
                    *last += 1;
                }
            }
            _ => {}
        }
        if open.len() > DEPTH_MAX || signs > CHAIN_MAX + DEPTH_MAX {
            return u32::try_from(offset).ok();
        }
        before = c;
    }
    None
}

/// Goes behind a text that began with `quote`, or with three of them.
fn skip_text(
    chars: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    quote: char,
    raw: bool,
) {
    let mut next_is_quote = || chars.next_if(|(_, c)| *c == quote).is_some();
    let triple = if next_is_quote() {
        if !next_is_quote() {
            return;
        }
        true
    } else {
        false
    };
    let mut quotes = 0;
    while let Some((_, c)) = chars.next() {
        if c == '\\' && !raw {
            chars.next();
            quotes = 0;
        } else if c == quote {
            quotes += 1;
            if !triple || quotes == 3 {
                return;
            }
        } else if c == '\n' && !triple {
            return;
        } else {
            quotes = 0;
        }
    }
}

/// Turns the parser's tree into ours.
struct Builder<'a> {
    source: &'a mut Source,
    info: &'a parsed::SourceInfo,
    macros: &'a Macros,
    issues: Vec<Issue>,
    text: &'a str,
    /// The last requested place, in bytes and in characters.
    read: (usize, u32),
}

impl Builder<'_> {
    /// The parser places a negative literal at its digits, cel-go at its sign.
    fn id(&mut self, id: u64, negative: bool) -> u32 {
        let mut byte = self.info.offset_for(id).map_or(0, |(start, _)| start as usize);
        if negative {
            let before = self.text.get(..byte).unwrap_or_default().trim_end();
            byte = before.strip_suffix('-').map_or(byte, str::len);
        }
        // The parser counts bytes. Nodes are met nearly in their order.
        let (bytes, characters) = self.read;
        let count = |from, to| {
            let part: Option<&str> = self.text.get(from..to);
            part.map_or(0, |part| u32::try_from(part.chars().count()).unwrap_or(u32::MAX))
        };
        let offset = if byte >= bytes {
            characters + count(bytes, byte)
        } else {
            characters - count(byte, bytes).min(characters)
        };
        self.read = (byte, offset);
        self.source.next_id(offset)
    }

    fn expr(&mut self, node: parsed::IdedExpr, depth: usize) -> Expr {
        let negative = match &node.expr {
            parsed::Expr::Literal(parsed::LiteralValue::Int(value)) => *value.inner() < 0,
            parsed::Expr::Literal(parsed::LiteralValue::Double(value)) => {
                value.inner().is_sign_negative()
            }
            _ => false,
        };
        let id = self.id(node.id, negative);
        if depth > TREE_DEPTH_MAX {
            if self.issues.is_empty() {
                let message = TOO_DEEP.to_owned();
                self.issues.push(Issue { position: self.source.position(id), message });
            }
            return Expr { id, kind: ExprKind::Literal(Literal::Null) };
        }
        let depth = depth + 1;
        let kind = match node.expr {
            // The parser leaves this where it reported a fault.
            parsed::Expr::Unspecified | parsed::Expr::Comprehension(_) => {
                ExprKind::Literal(Literal::Null)
            }
            parsed::Expr::Literal(value) => ExprKind::Literal(literal(value)),
            parsed::Expr::Ident(name) => ExprKind::Ident(name),
            parsed::Expr::Select(select) => ExprKind::Select {
                operand: Box::new(self.expr(*select.operand, depth)),
                field: select.field,
                test: select.test,
            },
            parsed::Expr::Call(call) => {
                let target = call.target.map(|target| self.expr(*target, depth));
                let args = call.args.into_iter().map(|arg| self.expr(arg, depth)).collect();
                return self.call(id, call.func_name, target, args);
            }
            parsed::Expr::List(list) => ExprKind::List {
                optional: list.optional_indices,
                elements: list.elements.into_iter().map(|e| self.expr(e, depth)).collect(),
            },
            parsed::Expr::Map(map) => {
                let mut entries = Vec::new();
                for entry in map.entries {
                    let id = self.id(entry.id, false);
                    if let parsed::EntryExpr::MapEntry(entry) = entry.expr {
                        entries.push(MapEntry {
                            id,
                            key: self.expr(entry.key, depth),
                            value: self.expr(entry.value, depth),
                            optional: entry.optional,
                        });
                    }
                }
                ExprKind::Map(entries)
            }
            parsed::Expr::Struct(object) => {
                let mut fields = Vec::new();
                for entry in object.entries {
                    let id = self.id(entry.id, false);
                    if let parsed::EntryExpr::StructField(field) = entry.expr {
                        fields.push(FieldInit {
                            id,
                            name: field.field,
                            value: self.expr(field.value, depth),
                            optional: field.optional,
                        });
                    }
                }
                ExprKind::Struct { name: object.type_name, fields }
            }
        };
        Expr { id, kind }
    }

    /// A call, or what a macro makes of it.
    fn call(&mut self, id: u32, function: String, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        // `optMap` copies what stands before it, so that a chain of it doubles with each link.
        if self.source.ids() > NODES_MAX {
            if self.issues.is_empty() {
                let message = format!("expression has more than {NODES_MAX} nodes");
                self.issues.push(Issue { position: self.source.position(id), message });
            }
            return Expr { id, kind: ExprKind::Literal(Literal::Null) };
        }
        match macros::expand(self.source, self.macros, id, &function, target, args) {
            Ok(macros::Expanded::Expr(expr)) => expr,
            Ok(macros::Expanded::Not(target, args)) => {
                let target = target.map(Box::new);
                Expr { id, kind: ExprKind::Call { function, target, args } }
            }
            Err(issue) => {
                self.issues.push(issue);
                Expr { id, kind: ExprKind::Literal(Literal::Null) }
            }
        }
    }
}

fn literal(value: parsed::LiteralValue) -> Literal {
    match value {
        parsed::LiteralValue::Boolean(value) => Literal::Bool(*value.inner()),
        parsed::LiteralValue::Bytes(value) => Literal::Bytes(Arc::from(value.inner())),
        parsed::LiteralValue::Double(value) => Literal::Double(*value.inner()),
        parsed::LiteralValue::Int(value) => Literal::Int(*value.inner()),
        parsed::LiteralValue::Null => Literal::Null,
        parsed::LiteralValue::String(value) => Literal::String(Arc::from(value.inner())),
        parsed::LiteralValue::UInt(value) => Literal::Uint(*value.inner()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::SNIPPET_BYTES_MAX;

    fn faults(text: &str) -> String {
        match parse(text, &Macros::KUBERNETES) {
            Ok(_) => "none".to_owned(),
            Err(issues) => issues.to_string(),
        }
    }

    #[test]
    fn nodes_stand_at_their_sign_in_characters() {
        let ast = parse("'é😀' ==\n  self.a[0].f(1)", &Macros::KUBERNETES).unwrap();
        let ExprKind::Call { args, .. } = &ast.root.kind else { panic!("{ast:?}") };
        assert_eq!(ast.source.position(ast.root.id), Position { line: 1, column: 5 });
        let ExprKind::Call { target: Some(target), .. } = &args[1].kind else { panic!("{ast:?}") };
        assert_eq!(ast.source.position(args[1].id), Position { line: 2, column: 13 });
        assert_eq!(ast.source.position(target.id), Position { line: 2, column: 8 });
    }

    #[test]
    fn syntax_errors_have_their_line_and_a_caret() {
        assert_eq!(
            faults("self.a ="),
            "ERROR: <input>:1:8: Syntax error: token recognition error at: '='\n | self.a =\n | .......^"
        );
        assert!(faults("'é😀' =").starts_with("ERROR: <input>:1:6: Syntax error: token"));
        assert!(
            faults("").starts_with("ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>'")
        );
        assert!(
            faults("has(1)").starts_with("ERROR: <input>:1:5: invalid argument to has() macro")
        );
        assert!(
            faults("[1].all(1, true)")
                .starts_with("ERROR: <input>:1:9: argument must be a simple name")
        );
        assert!(faults("1.all(x, x, true)").contains("duplicate variable name: x"));
        assert_eq!(faults("[1].existsOne(x, true)"), "none");
    }

    #[test]
    fn whatever_nests_is_bounded() {
        let long = [
            "(".repeat(5_000) + "1",
            "[".repeat(5_000),
            "(".repeat(DEPTH_MAX - 1) + "1" + &")".repeat(DEPTH_MAX - 1),
            "[".repeat(DEPTH_MAX - 1) + "1" + &"]".repeat(DEPTH_MAX - 1),
            "1+1+(".repeat(DEPTH_MAX - 1) + "1" + &")".repeat(DEPTH_MAX - 1),
            "a.b(1+".repeat(DEPTH_MAX - 1) + "1" + &")".repeat(DEPTH_MAX - 1),
            "[1].map(x,".repeat(DEPTH_MAX - 1) + "1" + &")".repeat(DEPTH_MAX - 1),
            "!".repeat(CHAIN_MAX) + "true",
            "1".to_owned() + &"+1".repeat(CHAIN_MAX),
            "1".to_owned() + &"in 1 ".repeat(1_900),
            "true ? 1 : ".repeat(CHAIN_MAX / 2) + "1",
            "a".to_owned() + &".b".repeat(CHAIN_MAX),
            "a".to_owned() + &"[0]".repeat(CHAIN_MAX),
            "1".to_owned() + &"+1".repeat(5_000),
            "!".repeat(9_000) + "true",
            "-".repeat(9_000) + "1",
            "a".to_owned() + &".b".repeat(5_000),
            "a".to_owned() + &".?b".repeat(3_000),
            "a".to_owned() + &"[0]".repeat(3_000),
            "a".to_owned() + &".f()".repeat(2_500),
            "true ? ".repeat(1_400) + "1" + &" : 2".repeat(20),
            "true ? 1 : ".repeat(900) + "1",
            "true".to_owned() + &"&&true".repeat(1_600),
            "1".to_owned() + &"==1".repeat(3_000),
            "a{b:".repeat(2_000),
            "a.map(x,".repeat(1_000),
            "optional.of(1)".to_owned() + &".optMap(x, x)".repeat(90),
        ];
        // The stack that threads have by default.
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
            for text in &long {
                let start: String = text.chars().take(12).collect();
                let outcome = parse(text, &Macros::KUBERNETES);
                if let Ok(ast) = outcome {
                    assert!(ast.source.ids() <= 2 * NODES_MAX, "{start}");
                    let library = crate::library::Library::kubernetes();
                    let program = crate::Program::unchecked(&ast, library);
                    _ = program.evaluate(&mut crate::Context::default(), &());
                    _ = crate::check(ast, &crate::Env::kubernetes());
                }
            }
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn signs_in_texts_and_comments_do_not_nest() {
        let dots = "(.".repeat(1_000);
        assert_eq!(
            faults(&format!("'{dots}' == \"{dots}\" || '\\'{dots}' == r'{dots}\\'")),
            "none"
        );
        assert_eq!(faults(&format!("'''{dots}'x''' == '' // {dots}")), "none");
        assert_eq!(faults(&("1".to_owned() + &"+1".repeat(CHAIN_MAX))), "none");
        let deep = "(".repeat(DEPTH_MAX) + "1" + &")".repeat(DEPTH_MAX);
        assert!(faults(&deep).contains("expression recursion limit exceeded: 250"));
    }

    #[test]
    fn a_chain_of_conditions_with_and_is_as_long_as_a_rule() {
        let text = "true".to_owned() + &" && true".repeat(1_000);
        assert_eq!(faults(&text), "none");
    }

    #[test]
    fn a_text_has_at_most_a_hundred_thousand_code_points() {
        let text = format!("'{}' != ''", "é".repeat(CODE_POINTS_MAX - 8));
        assert_eq!(faults(&text), "none");
        assert_eq!(
            faults(&(text + " ")),
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000"
        );
    }

    #[test]
    fn a_long_line_is_not_shown() {
        let line = |n: usize| format!("'{}' ?", "x".repeat(n));
        assert!(faults(&line(SNIPPET_BYTES_MAX - 4)).contains("\n | 'xxx"));
        let long = faults(&line(SNIPPET_BYTES_MAX - 3));
        assert!(!long.contains("\n |") && long.contains("ERROR: <input>:1:16386: "), "{long}");
    }
}
