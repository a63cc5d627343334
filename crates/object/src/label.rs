//! Label selectors (spec: api-server §8).
/// A parsed label selector; the empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
}
/// One requirement of a selector.
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
/// The text of the 400 the API answers with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);
impl Selector {
    /// Matches everything.
    pub fn everything() -> Self {
        Self::default()
    }
    /// Parses the query form: `a=b,c in (d,e),!f`.
    pub fn parse(_text: &str) -> Result<Self, ParseError> {
        todo!()
    }
    /// From a `LabelSelector` object (`matchLabels`, `matchExpressions`); `Null` matches nothing (`None`).
    pub fn from_object(_selector: &serde_json::Value) -> Result<Option<Self>, ParseError> {
        todo!()
    }
    /// Whether it has no requirement.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
    /// Its requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
    /// Matches a set of labels given as a look-up.
    pub fn matches<'a>(&self, _label: impl Fn(&str) -> Option<&'a str>) -> bool {
        todo!()
    }
}
impl std::fmt::Display for Selector {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
