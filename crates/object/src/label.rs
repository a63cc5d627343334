//! Label selectors (spec: api-server §8).
use crate::field::{self, Path};
use crate::name;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

mod matcher;
mod parse;

pub use matcher::Matcher;

/// Errors of a requirement's values beyond this size are counted, not shown. Each is a hundred
/// times as long as a short value, and a selector may have as many as fit in a request.
const ERRORS_BYTES_MAX: usize = 16 << 10;

/// A parsed label selector. The empty one matches everything.
///
/// All its requirements must hold. In a parsed selector they are sorted by key, as the API shows
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
}
/// One requirement of a selector. Its values are sorted. One is there as often as an object says
/// it, and only once where a text does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}
/// The operators of the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Exists,
    DoesNotExist,
    In,
    NotIn,
    Equals,
    NotEquals,
    GreaterThan,
    LessThan,
}
/// A parse error, displayed as the text of the API's 400 response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Selector {
    /// A selector that matches everything.
    pub fn everything() -> Self {
        Self::default()
    }
    /// A selector that requires exactly these labels.
    ///
    /// # Errors
    ///
    /// If a key or value is not valid for a label.
    pub fn from_labels<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParseError> {
        let requirements = labels
            .into_iter()
            .map(|(key, value)| Requirement::new(key, Operator::Equals, vec![value.to_owned()]));
        Ok(Self::of(requirements.collect::<Result<_, _>>()?))
    }
    /// Parses the query form: `a=b,c in (d,e),!f`.
    ///
    /// # Errors
    ///
    /// Displays as the message of the API's 400 response.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::Parser::new(text).selector().map(Self::of).map_err(ParseError)
    }
    /// Converts a `LabelSelector` object (`matchLabels`, `matchExpressions`). `Null` matches
    /// nothing and gives `None`.
    ///
    /// # Errors
    ///
    /// If the API refuses an operator, key or value; displays as the API's message.
    pub fn from_object(selector: &Value) -> Result<Option<Self>, ParseError> {
        if selector.is_null() {
            return Ok(None);
        }
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        for (key, value) in labels {
            let values = vec![value.as_str().unwrap_or("").to_owned()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |name| expression.get(name).and_then(Value::as_str).unwrap_or("");
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let quoted = field::quote(other);
                    let text = format!("{quoted} is not a valid label selector operator");
                    return Err(ParseError(text));
                }
            };
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.map(|v| v.as_str().unwrap_or("").to_owned()).collect();
            requirements.push(Requirement::new(text("key"), operator, values)?);
        }
        Ok(Some(Self::of(requirements)))
    }
    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }
    /// Whether it has no requirements.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
    /// The labels that the selector requires to have one value, as `key=value` and `key in
    /// (value)` do: for an index by labels.
    pub fn required(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requirements.iter().filter_map(|requirement| {
            let is_one = matches!(requirement.operator, Operator::Equals | Operator::In);
            let [value] = &requirement.values[..] else { return None };
            is_one.then_some((&*requirement.key, &**value))
        })
    }
    /// Matches an object's labels, given as a lookup function.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    /// Creates a requirement after validating it.
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, ParseError> {
        values.sort_unstable();
        let mut faults = Vec::new();
        let show_values = || Value::from(values.clone());
        faults.extend(check_key(key, Path::new("key")));
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let detail = "for 'in', 'notin' operators, values set can't be empty";
                faults.push(field::Error::invalid(Path::new("values"), &show_values(), detail));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let detail = "values set must be empty for exists and does not exist";
                faults.push(field::Error::invalid(Path::new("values"), &show_values(), detail));
            }
            Operator::GreaterThan | Operator::LessThan => {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                for (idx, value) in values.iter().enumerate() {
                    if value.parse::<i64>().is_err() {
                        let path = Path::new("values").index(idx);
                        faults.push(field::Error::invalid(path, &value.as_str().into(), detail));
                    }
                }
            }
            _ => {}
        }
        let mut n_bytes = 0;
        // Values whose errors are left out.
        let mut n_others = 0;
        for (idx, value) in values.iter().enumerate() {
            if n_bytes > ERRORS_BYTES_MAX {
                n_others += usize::from(!name::is_label_value(value));
                continue;
            }
            let messages = name::label_value(value);
            if !messages.is_empty() {
                let path = Path::new("values").index(idx).key(key);
                let shown = value.as_str().into();
                let fault = field::Error::invalid(path, &shown, messages.join("; "));
                n_bytes += fault.n_bytes();
                faults.push(fault);
            }
        }
        if faults.is_empty() {
            return Ok(Self { key: key.to_owned(), operator, values });
        }
        let more = match n_others {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Err(ParseError(field::aggregate(&faults) + &more))
    }
    /// Whether the requirement holds for a label's value; `None` if the object lacks the label.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |value: &str| self.values.binary_search_by(|v| (**v).cmp(value)).is_ok();
        // Compares integers. A label that is not an integer does not match.
        let compares = |holds: fn(&i64, &i64) -> bool| {
            let wanted = self.values.first().and_then(|v| v.parse().ok());
            let found = value.and_then(|v| v.parse().ok());
            found.zip(wanted).is_some_and(|(found, wanted)| holds(&found, &wanted))
        };
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In | Operator::Equals => value.is_some_and(is_among),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(is_among),
            Operator::GreaterThan => compares(i64::gt),
            Operator::LessThan => compares(i64::lt),
        }
    }
}
/// The error of a label key; `None` if it is valid.
fn check_key(key: &str, path: Path) -> Option<field::Error> {
    let messages = name::qualified_name(key);
    let fault = || field::Error::invalid(path, &key.into(), messages.join("; "));
    (!messages.is_empty()).then(fault)
}

/// The query form, which parses to the same selector.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if idx > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A `LabelSelector` as Go prints a pointer to it, in messages and tables.
pub fn go_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    // Go sorts them.
    let labels: BTreeMap<_, _> = labels.collect();
    let labels = labels.iter().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        format!("{key}: {value},")
    });
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    let expressions = expressions.map(|expression| {
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            expression["key"].as_str().unwrap_or_default(),
            expression["operator"].as_str().unwrap_or_default(),
            values.join(" ")
        )
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

#[cfg(test)]
mod tests;
