//! Macros by chance: their loops and the names in them.

use setpoint_cel::types::Type;

use super::generate::Generator;

impl Generator {
    fn local(&mut self, ty: Type) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.locals.push((name.clone(), ty));
        name
    }

    /// A macro with such a result.
    pub(super) fn makro(&mut self, ty: &Type, depth: usize) -> Option<String> {
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
                    let name =
                        *self.random.of(&["all", "exists", "exists_one", "all", "existsOne"]);
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
                    format!(
                        "{range}.transformList({i}, {v}, {condition}, {}).size()",
                        self.of_type(of, depth)
                    )
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
                    format!(
                        "{range}.transformMap({i}, {v}, {condition}, {})",
                        self.of_type(of, depth)
                    )
                }
                _ => {
                    let range = self.of_type(&Type::list(element.clone()), depth);
                    let (i, v) = (self.local(Type::Int), self.local(element));
                    let entry =
                        format!("{{{}: {}}}", self.of_type(key, depth), self.of_type(of, depth));
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
}
