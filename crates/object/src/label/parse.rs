//! The grammar of the query form. Error messages name the unexpected token, as the API's do.
use super::{Operator, Requirement, check_key};
use crate::field::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Identifier,
    In,
    NotIn,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
}

/// How a token is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    /// `in` and `notin` are operators.
    Operator,
    /// `in` and `notin` are ordinary names.
    Value,
}

#[derive(Debug)]
pub(super) struct Parser<'a> {
    rest: &'a str,
}
type Parsed<T> = Result<T, String>;

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }
    /// The next token, its text, and the text after it. As to Go's lexer, a zero byte ends the text
    /// where a token may start, and belongs to the token that it follows.
    fn scan(&self, context: Context) -> (Token, &'a str, &'a str) {
        let text = self.rest.trim_start_matches(is_space);
        let len = match text.as_bytes() {
            [] | [0, ..] => 0,
            [b'=', b'=', ..] | [b'!', b'=', ..] => 2,
            [b'=' | b'!' | b'(' | b')' | b',' | b'<' | b'>', ..] => 1,
            _ => {
                let is_end = |c| is_space(c) || is_special(c) || c == '\0';
                text.find(is_end).unwrap_or(text.len())
            }
        };
        let (literal, rest) = text.split_at(len);
        let rest = if len > 0 { rest.strip_prefix('\0').unwrap_or(rest) } else { rest };
        let token = match literal {
            "" => Token::End,
            "==" => Token::DoubleEquals,
            "!=" => Token::NotEquals,
            "=" => Token::Equals,
            "!" => Token::Not,
            "(" => Token::Open,
            ")" => Token::Close,
            "," => Token::Comma,
            ">" => Token::Greater,
            "<" => Token::Less,
            "in" if context == Context::Operator => Token::In,
            "notin" if context == Context::Operator => Token::NotIn,
            _ => Token::Identifier,
        };
        (token, literal, rest)
    }
    fn peek(&self) -> (Token, &'a str) {
        let (token, literal, _) = self.scan(Context::Value);
        (token, literal)
    }
    fn next(&mut self, context: Context) -> (Token, &'a str) {
        let (token, literal, rest) = self.scan(context);
        self.rest = rest;
        (token, literal)
    }

    pub(super) fn selector(mut self) -> Parsed<Vec<Requirement>> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::End, _) => return Ok(requirements),
                (Token::Identifier | Token::Not, _) => {}
                (_, found) => {
                    return Err(format!(
                        "found '{found}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            let requirement =
                self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
            requirements.push(requirement);
            match self.next(Context::Value) {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => match self.peek() {
                    (Token::Identifier | Token::Not, _) => {}
                    (_, found) => {
                        return Err(format!("found '{found}', expected: identifier after ','"));
                    }
                },
                (_, found) => {
                    return Err(format!("found '{found}', expected: ',' or 'end of string'"));
                }
            }
        }
    }
    fn requirement(&mut self) -> Parsed<Requirement> {
        let (mut token, mut key) = self.next(Context::Value);
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next(Context::Value);
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(fault) = check_key(key, Path::root()) {
            return Err(fault.to_string());
        }
        let make = |operator, mut values: Vec<String>| {
            values.sort_unstable();
            values.dedup();
            Requirement::new(key, operator, values).map_err(|error| error.to_string())
        };
        if negated {
            return make(Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return make(Operator::Exists, Vec::new());
        }
        let operator = match self.next(Context::Operator) {
            (Token::In, _) => Operator::In,
            (Token::NotIn, _) => Operator::NotIn,
            (Token::Equals | Token::DoubleEquals, _) => Operator::Equals,
            (Token::NotEquals, _) => Operator::NotEquals,
            (Token::Greater, _) => Operator::GreaterThan,
            (Token::Less, _) => Operator::LessThan,
            (_, found) => {
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        make(operator, values)
    }
    /// The value after `=`, `==` or `!=`: a name, or nothing, which means the empty value.
    fn value(&mut self) -> Parsed<String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next(Context::Value) {
            (Token::Identifier, value) => Ok(value.to_owned()),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }
    /// The values after `in` and `notin`: names in parentheses; an empty entry means the empty
    /// value.
    fn values(&mut self) -> Parsed<Vec<String>> {
        let (token, found) = self.next(Context::Value);
        if token != Token::Open {
            return Err(format!("found '{found}' expected: '('"));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma | Token::Close, _) => {}
            (_, found) => {
                return Err(format!("found '{found}', expected: ',', ')' or identifier"));
            }
        }
        let mut values = Vec::new();
        loop {
            let value = match self.peek() {
                (Token::Identifier, value) => {
                    self.next(Context::Value);
                    value
                }
                (Token::Comma | Token::Close, _) => "",
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            };
            values.push(value.to_owned());
            match self.next(Context::Value) {
                (Token::Comma, _) => {}
                (Token::Close, _) => return Ok(values),
                (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
            }
        }
    }
}
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}
fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
