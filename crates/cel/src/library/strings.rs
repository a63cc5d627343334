//! cel-go's library of texts, version 2. Sizes and indices count characters.

mod format;

use super::{Cost, Overload, global, go, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Dyn, Int, String as Text};
use crate::value::{Str, Value};

type Result<'v> = std::result::Result<Value<'v>, Error>;

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let texts = || Type::list(Text);
    vec![
        member("charAt", "string_char_at_int", [Text, Int], Text).call(char_at),
        member("indexOf", "string_index_of_string", [Text, Text], Int)
            .cost(Cost::Aggregate)
            .call(index_of),
        member("indexOf", "string_index_of_string_int", [Text, Text, Int], Int)
            .cost(Cost::Aggregate)
            .call(index_of),
        member("lastIndexOf", "string_last_index_of_string", [Text, Text], Int)
            .cost(Cost::Aggregate)
            .call(last_index_of),
        member("lastIndexOf", "string_last_index_of_string_int", [Text, Text, Int], Int)
            .cost(Cost::Aggregate)
            .call(last_index_of),
        member("lowerAscii", "string_lower_ascii", [Text], Text).cost(Cost::Scan).call(lower),
        member("replace", "string_replace_string_string", [Text, Text, Text], Text)
            .cost(Cost::Replace)
            .call(replace),
        member("replace", "string_replace_string_string_int", [Text, Text, Text, Int], Text)
            .cost(Cost::Replace)
            .call(replace),
        member("split", "string_split_string", [Text, Text], texts()).cost(Cost::Split).call(split),
        member("split", "string_split_string_int", [Text, Text, Int], texts())
            .cost(Cost::Split)
            .call(split),
        member("substring", "string_substring_int", [Text, Int], Text)
            .cost(Cost::Scan)
            .call(substring),
        member("substring", "string_substring_int_int", [Text, Int, Int], Text)
            .cost(Cost::Scan)
            .call(substring),
        member("trim", "string_trim", [Text], Text).cost(Cost::Scan).call(trim),
        member("upperAscii", "string_upper_ascii", [Text], Text).cost(Cost::Scan).call(upper),
        member("format", "string_format", [Text, Type::list(Dyn)], Text)
            .cost(Cost::Format)
            .call(format::format),
        global("strings.quote", "strings_quote", [Text], Text).cost(Cost::Quote).call(quote),
        member("join", "list_join", [texts()], Text).cost(Cost::Join).call(join),
        member("join", "list_join_string", [texts(), Text], Text).cost(Cost::Join).call(join),
    ]
}

/// Functions of later versions, which Kubernetes does not have.
pub(super) fn later() -> Vec<Overload> {
    vec![member("reverse", "string_reverse", [Text], Text).cost(Cost::Scan).call(reverse)]
}

fn out_of_range(index: i64) -> Error {
    Error::message(format!("index out of range: {index}"))
}

/// A part of a text, without copying it if it is part of a tree.
fn part<'v>(text: &Str<'v>, from: usize, to: usize) -> Value<'v> {
    match text {
        Str::Borrowed(text) => Value::String(Str::Borrowed(text.get(from..to).unwrap_or_default())),
        Str::Shared(text) => text.get(from..to).unwrap_or_default().to_owned().into(),
    }
}

/// Where a character begins; the end of the text for one behind the last.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn char_at<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text), Value::Int(index)] = args else { return Err(Error::NoSuchOverload) };
    let at = byte_of(text, *index).ok_or_else(|| out_of_range(*index))?;
    let next = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
    Ok(part(text, at, next))
}

fn index_of<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, wanted, offset) = match args {
        [Value::String(text), Value::String(wanted)] => (text, wanted, 0),
        [Value::String(text), Value::String(wanted), Value::Int(offset)] => (text, wanted, *offset),
        _ => return Err(Error::NoSuchOverload),
    };
    if wanted.is_empty() {
        return Ok(Value::Int(offset));
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let found = byte_of(text, offset)
        .and_then(|from| text[from..].find(&**wanted).map(|at| text[..from + at].chars().count()));
    Ok(Value::Int(found.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX))))
}

fn last_index_of<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, wanted, offset) = match args {
        [Value::String(text), Value::String(wanted)] => (text, wanted, None),
        [Value::String(text), Value::String(wanted), Value::Int(offset)] => {
            (text, wanted, Some(*offset))
        }
        _ => return Err(Error::NoSuchOverload),
    };
    let size = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if wanted.is_empty() {
        return Ok(Value::Int(offset.unwrap_or(size)));
    }
    let until = match offset {
        None => text.len(),
        Some(offset) if offset < 0 => return Err(out_of_range(offset)),
        Some(offset) if offset >= size => return Ok(Value::Int(-1)),
        // The match begins at this character at the latest.
        Some(offset) => {
            let begin = byte_of(text, offset).unwrap_or(text.len());
            let mut until = (begin + wanted.len()).min(text.len());
            while !text.is_char_boundary(until) {
                until -= 1;
            }
            until
        }
    };
    let found = text[..until].rfind(&**wanted).map(|at| text[..at].chars().count());
    Ok(Value::Int(found.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX))))
}

fn lower<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(text.len())?;
    Ok(text.to_ascii_lowercase().into())
}

fn upper<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(text.len())?;
    Ok(text.to_ascii_uppercase().into())
}

fn replace<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, old, new, count) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(count)] => {
            (text, old, new, *count)
        }
        _ => return Err(Error::NoSuchOverload),
    };
    let most = if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() };
    let count = usize::try_from(count).map_or(most, |count| count.min(most));
    context.allocate(text.len().saturating_add(new.len().saturating_mul(count)))?;
    Ok(text.replacen(&**old, new, count).into())
}

fn split<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, separator, count) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(count)] => {
            (text, separator, *count)
        }
        _ => return Err(Error::NoSuchOverload),
    };
    if count == 0 {
        return Ok(Vec::new().into());
    }
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    // Each part takes a value and, unless it is part of a tree, a text of its own.
    let parts = match separator.is_empty() {
        true => text.chars().count(),
        false => text.matches(&**separator).count() + 1,
    };
    context.allocate(text.len() + parts.min(limit) * 2 * size_of::<Value<'_>>())?;
    let mut parts = Vec::new();
    let mut from = 0;
    while parts.len() + 1 < limit {
        let rest = &text[from..];
        let next = match separator.is_empty() {
            // Between two characters, not at the end.
            true => rest.chars().next().map(char::len_utf8).filter(|size| *size < rest.len()),
            false => rest.find(&**separator),
        };
        let Some(next) = next else { break };
        parts.push(part(text, from, from + next));
        from += next + separator.len();
    }
    if !(separator.is_empty() && text.is_empty()) {
        parts.push(part(text, from, text.len()));
    }
    Ok(parts.into())
}

fn substring<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(Error::NoSuchOverload),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(Error::message(message));
    }
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(part(text, from, to))
}

fn trim<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    let from = text.len() - text.trim_start().len();
    Ok(part(text, from, from + text.trim().len()))
}

fn quote<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(text.len() * 2)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(quoted.into())
}

fn join<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(Error::NoSuchOverload),
    };
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        let item = item?;
        let Value::String(text) = &item else {
            return Err(Error::message(format!("join: invalid input: {}", go::display(&item))));
        };
        context.allocate(text.len() + separator.len())?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    Ok(joined.into())
}

fn reverse<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(text.len())?;
    Ok(text.chars().rev().collect::<String>().into())
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn indices_count_characters() {
        check("'tacocat'.charAt(3)", "\"o\"");
        check("'©αT'.charAt(2)", "\"T\"");
        check("'abc'.charAt(3)", "\"\"");
        check("'abc'.charAt(4)", "error: index out of range: 4");
        check("'hello mellow'.indexOf('ello')", "1");
        check("'hello mellow'.indexOf('ello', 2)", "7");
        check("'hello mellow'.indexOf('jello')", "-1");
        check("'hello'.indexOf('', 9)", "9");
        check("'ta©o©αT'.indexOf('©')", "2");
        check("'hello mellow'.lastIndexOf('ello')", "7");
        check("'hello mellow'.lastIndexOf('ello', 6)", "1");
        check("'hello mellow'.lastIndexOf('')", "12");
        check("'hello mellow'.lastIndexOf('ello', -1)", "error: index out of range: -1");
        check("'ta©o©αT'.lastIndexOf('©')", "4");
    }

    #[test]
    fn parts_are_cut_where_asked() {
        check("'tacocat'.substring(4)", "\"cat\"");
        check("'tacocat'.substring(0, 4)", "\"taco\"");
        check("'ta©o©αT'.substring(2, 6)", "\"©o©α\"");
        check("'tacocat'.substring(2, 1)", "error: invalid substring range. start: 2, end: 1");
        check("'tacocat'.substring(40)", "error: index out of range: 40");
        check("'hello hello'.split(' ')", "[\"hello\", \"hello\"]");
        check("'a,b,c'.split(',', 2)", "[\"a\", \"b,c\"]");
        check("'a,b,c'.split(',', 0)", "[]");
        check("'abc'.split('')", "[\"a\", \"b\", \"c\"]");
        check("''.split('')", "[]");
        check("''.split(',')", "[\"\"]");
        check("'  \\u00a0text\\t'.trim()", "\"text\"");
        check("['x', 'y'].join()", "\"xy\"");
        check("['x', 'y'].join('-')", "\"x-y\"");
    }

    #[test]
    fn texts_are_changed() {
        check("'TacoCat©Ä'.lowerAscii()", "\"tacocat©Ä\"");
        check("'tacoCatä'.upperAscii()", "\"TACOCATä\"");
        check("'hello hello'.replace('he', 'we')", "\"wello wello\"");
        check("'hello hello'.replace('he', 'we', 1)", "\"wello hello\"");
        check("'hello hello'.replace('he', 'we', 0)", "\"hello hello\"");
        check("'hello'.replace('', '_')", "\"_h_e_l_l_o_\"");
        check("strings.quote('first\\nsecond \"x\"')", r#""\"first\\nsecond \\\"x\\\"\"""#);
    }

    #[test]
    fn reversing_a_text_is_not_there() {
        check("'abc'.reverse()", "error: no such overload: reverse(string)");
    }
}
