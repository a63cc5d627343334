//! Templates: YAML values with expressions in texts.

use serde_json::Value;
use setpoint_object::jsonpath::JsonPath;

/// A value whose texts may have expressions: `${.metadata.name}`, `${now}`.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    Value(Value),
    List(Vec<Template>),
    Map(Vec<(String, Template)>),
    Text(Vec<Part>),
    /// One value per item of the list that a path finds.
    Each {
        path: Path,
        body: Box<Template>,
    },
}

/// A part of a text.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Literal(String),
    /// A name that the stage's surroundings define: `now`, `node.ip`, `pod.ip`.
    Variable(String),
    /// A path in the object.
    Object(Path),
    /// A path in the item of an `$each`.
    Item(Path),
}

/// A JSONPath that is written without braces: `.metadata.name`.
#[derive(Debug, Clone)]
pub(crate) struct Path(JsonPath);

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('.') && !text.starts_with('[') {
            return Err(format!("the path {text:?} does not start with a dot"));
        }
        JsonPath::parse(&format!("{{{text}}}")).map(Self).map_err(|error| error.to_string())
    }

    /// The values that it finds.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let found = self.0.find(object).into_iter();
        found.filter(|value| !value.is_null()).collect()
    }
}

/// What expressions may use.
pub(crate) struct Scope<'a> {
    pub(crate) object: &'a Value,
    pub(crate) item: Option<&'a Value>,
    pub(crate) variable: &'a (dyn Fn(&str) -> Option<Value> + Sync),
}

/// The names that expressions may use beside paths.
const VARIABLES: [&str; 5] = ["now", "node.name", "node.ip", "node.addresses", "pod.ip"];

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// An expression is invalid.
    pub(crate) fn read(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::read_text(&text)?,
            Value::Array(items) => {
                Self::List(items.into_iter().map(Self::read).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => match (map.get("$each"), map.get("$value")) {
                (Some(Value::String(path)), Some(body)) if map.len() == 2 => Self::Each {
                    path: Path::parse(path)?,
                    body: Box::new(Self::read(body.clone())?),
                },
                (None, None) => {
                    let read = |(key, value)| Ok((key, Self::read(value)?));
                    Self::Map(map.into_iter().map(read).collect::<Result<_, String>>()?)
                }
                _ => return Err("$each and $value belong together, without others".to_owned()),
            },
            value => Self::Value(value),
        })
    }

    fn read_text(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((literal, more)) = rest.split_once("${") {
            let (expression, after) =
                more.split_once('}').ok_or_else(|| format!("{text:?} has no closing brace"))?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let expression = expression.trim();
            parts.push(match expression.strip_prefix("item") {
                Some("") => Part::Item(Path::parse(".")?),
                Some(path) if path.starts_with(['.', '[']) => Part::Item(Path::parse(path)?),
                _ if expression.starts_with(['.', '[']) => Part::Object(Path::parse(expression)?),
                _ if VARIABLES.contains(&expression) => Part::Variable(expression.to_owned()),
                _ => {
                    return Err(format!(
                        "{expression:?} is neither a path nor one of {VARIABLES:?}"
                    ));
                }
            });
            rest = after;
        }
        if parts.is_empty() {
            return Ok(Self::Value(Value::String(rest.to_owned())));
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self::Text(parts))
    }

    /// The value for an object. A text that is one expression becomes what the expression finds,
    /// and null if it finds nothing.
    pub(crate) fn fill(&self, scope: &Scope<'_>) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::List(items) => {
                let mut filled = Vec::new();
                for item in items {
                    match (item, item.fill(scope)) {
                        // The items of `$each` become items of the list around it.
                        (Self::Each { .. }, Value::Array(values)) => filled.extend(values),
                        (_, value) => filled.push(value),
                    }
                }
                Value::Array(filled)
            }
            Self::Map(entries) => {
                let fill = |(key, value): &(String, Self)| (key.clone(), value.fill(scope));
                Value::Object(entries.iter().map(fill).collect())
            }
            Self::Text(parts) => match parts.as_slice() {
                [part] => part.value(scope),
                parts => Value::String(parts.iter().map(|part| part.text(scope)).collect()),
            },
            Self::Each { path, body } => {
                let found = path.find(scope.object).into_iter();
                let items = found.flat_map(|found| match found {
                    Value::Array(items) => items.iter().collect(),
                    value => vec![value],
                });
                let fill = |item| body.fill(&Scope { item: Some(item), ..*scope });
                Value::Array(items.map(fill).collect())
            }
        }
    }
}

impl Part {
    fn value(&self, scope: &Scope<'_>) -> Value {
        let first = |path: &Path, object: &Value| path.find(object).first().map(|v| (*v).clone());
        match self {
            Self::Literal(text) => text.as_str().into(),
            Self::Variable(name) => (scope.variable)(name).unwrap_or_default(),
            Self::Object(path) => first(path, scope.object).unwrap_or_default(),
            Self::Item(path) => scope.item.and_then(|item| first(path, item)).unwrap_or_default(),
        }
    }

    fn text(&self, scope: &Scope<'_>) -> String {
        match self.value(scope) {
            Value::Null => String::new(),
            Value::String(text) => text,
            value => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(template: Value, object: &Value) -> Result<Value, String> {
        let variable = |name: &str| (name == "now").then(|| "12:00".into());
        let scope = Scope { object, item: None, variable: &variable };
        Ok(Template::read(template)?.fill(&scope))
    }

    #[test]
    fn expressions_become_values() {
        let object = json!({"metadata": {"name": "a", "generation": 3},
            "spec": {"containers": [{"name": "x"}, {"name": "y"}]}});
        for (template, filled) in [
            (json!("plain"), json!("plain")),
            (json!("${.metadata.generation}"), json!(3)),
            (json!("${.metadata.name}-${.metadata.generation} at ${now}"), json!("a-3 at 12:00")),
            (json!({"none": "${.spec.none}"}), json!({"none": null})),
            (
                json!([{"$each": ".spec.containers", "$value": {"n": "${item.name}"}}]),
                json!([{"n": "x"}, {"n": "y"}]),
            ),
            (json!({"l": {"$each": ".spec.containers", "$value": 1}}), json!({"l": [1, 1]})),
        ] {
            assert_eq!(fill(template, &object).unwrap(), filled);
        }
        for wrong in [json!("${.a"), json!("${nonsense}"), json!({"$each": ".a"}), json!("${.a[}")]
        {
            assert!(fill(wrong.clone(), &object).is_err(), "{wrong}");
        }
    }
}
