//! `#[derive(Partial)]`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, GenericArgument, Ident, Lit,
    LitStr, Path, PathArguments, Result, Token, Type, Visibility, parse_quote,
};

/// What the attributes of the struct say.
struct Struct {
    krate: Path,
    case: Case,
    kind: Option<Kind>,
}

/// The kind that `#[kube(…)]` makes of the struct.
struct Kind {
    root: Path,
    status: Option<Path>,
    has_spec: bool,
}

/// A field of the struct.
struct Setter {
    field: Ident,
    wire: String,
    docs: Vec<Attribute>,
    value: Value,
}

/// What a setter takes.
enum Value {
    /// A value of a type. A field that is an `Option` takes what is in it.
    Whole(Type),
    Text,
    /// A closure that changes the partial of a type.
    Object(Type),
    /// The same for a new item of a list.
    Item(Type),
    /// The same for the item of a list with this key, by its name on the wire.
    Keyed(Type, String),
}

/// `#[serde(rename_all = …)]`.
#[derive(Clone, Copy)]
enum Case {
    Same,
    Lower,
    Upper,
    Pascal,
    Camel,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a partial is of a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "the struct has named fields"));
    };
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new_spanned(parameter, "the struct has no parameters"));
    }
    let of_struct = Struct::parse(input)?;
    let mut setters = Vec::new();
    for field in &fields.named {
        setters.extend(Setter::parse(field, of_struct.case)?);
    }
    let Struct { krate, kind, .. } = &of_struct;
    let (name, visibility) = (&input.ident, &input.vis);
    let partial = format_ident!("{name}Partial");
    if let Some(Kind { status: Some(status), has_spec: false, .. }) = kind {
        setters.push(Setter::object("status", status));
    }
    let of_fields = define(krate, visibility, &partial, &format!("`{name}`"), &setters);
    let of_kind = kind.as_ref().map(|Kind { root, status, has_spec }| {
        if !has_spec {
            return quote!(impl #krate::HasPartial for #root { type Partial = #partial; });
        }
        let mut setters = vec![Setter::object("spec", &parse_quote!(#name))];
        setters.extend(status.as_ref().map(|status| Setter::object("status", status)));
        let root_name = root.segments.last().map(|last| last.ident.to_string());
        let root_name = root_name.unwrap_or_default();
        let root_partial = format_ident!("{root_name}Partial");
        let definition =
            define(krate, visibility, &root_partial, &format!("`{root_name}`"), &setters);
        quote! {
            #definition

            impl #krate::HasPartial for #root {
                type Partial = #root_partial;
            }
        }
    });
    Ok(quote! {
        #of_fields

        impl #krate::HasPartial for #name {
            type Partial = #partial;
        }

        #of_kind
    })
}

/// The type of a partial, with its setters.
fn define(
    krate: &Path,
    visibility: &Visibility,
    partial: &Ident,
    of: &str,
    setters: &[Setter],
) -> TokenStream {
    let doc = format!("Some fields of {of}, for server-side apply.");
    let setters = setters.iter().map(|setter| setter.define(krate, visibility));
    quote! {
        #[doc = #doc]
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::default::Default)]
        #[must_use = "an apply sends only what it is given"]
        #visibility struct #partial(#krate::Members);

        impl #krate::Partial for #partial {
            fn from_members(members: #krate::Members) -> Self {
                Self(members)
            }

            fn into_members(self) -> #krate::Members {
                self.0
            }
        }

        #[allow(dead_code)]
        impl #partial {
            /// Sets a field if there is a value: `if_some(value, Self::field)`.
            #visibility fn if_some<V>(
                self,
                value: ::core::option::Option<V>,
                set: impl ::core::ops::FnOnce(Self, V) -> Self,
            ) -> Self {
                match value {
                    ::core::option::Option::Some(value) => set(self, value),
                    ::core::option::Option::None => self,
                }
            }

            #(#setters)*
        }
    }
}

impl Struct {
    fn parse(input: &DeriveInput) -> Result<Self> {
        let mut krate: Path = parse_quote!(::setpoint::apply);
        let mut case = Case::Same;
        let (mut kind, mut root, mut status) = (None::<Ident>, None::<Path>, None);
        let mut has_spec = true;
        for attribute in &input.attrs {
            if attribute.path().is_ident("partial") {
                attribute.parse_nested_meta(|meta| {
                    if !meta.path.is_ident("crate") {
                        return Err(meta.error("expected `crate = path`"));
                    }
                    krate = meta.value()?.parse()?;
                    Ok(())
                })?;
            } else if attribute.path().is_ident("serde") {
                attribute.parse_nested_meta(|meta| {
                    if !meta.path.is_ident("rename_all") {
                        return skip(&meta);
                    }
                    // `rename_all(serialize = "…")` may differ from what the server reads.
                    let text: LitStr = meta.value()?.parse()?;
                    case = Case::parse(&text)?;
                    Ok(())
                })?;
            } else if attribute.path().is_ident("kube") {
                attribute.parse_nested_meta(|meta| {
                    if meta.path.is_ident("kind") {
                        let text: LitStr = meta.value()?.parse()?;
                        kind = Some(text.parse()?);
                    } else if meta.path.is_ident("root") {
                        root = Some(path(&meta)?);
                    } else if meta.path.is_ident("status") {
                        status = Some(path(&meta)?);
                    } else if meta.path.is_ident("no_spec") {
                        has_spec = false;
                    } else {
                        skip(&meta)?;
                    }
                    Ok(())
                })?;
            }
        }
        let root = root.or(kind.map(Path::from));
        Ok(Self { krate, case, kind: root.map(|root| Kind { root, status, has_spec }) })
    }
}

/// `name = "path"` or `name = path`.
fn path(meta: &ParseNestedMeta<'_>) -> Result<Path> {
    match meta.value()?.parse()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.parse(),
        Expr::Path(path) => Ok(path.path),
        other => Err(Error::new_spanned(other, "expected a path")),
    }
}

/// Skips the value of an option.
fn skip(meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<Expr>()?;
    } else if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<TokenStream>()?;
    }
    Ok(())
}

impl Setter {
    /// A setter of a member that is an object.
    fn object(name: &str, of: &Path) -> Self {
        Self {
            field: Ident::new(name, Span::call_site()),
            wire: name.to_owned(),
            docs: Vec::new(),
            value: Value::Object(parse_quote!(#of)),
        }
    }

    /// `None` if the field is not serialized.
    fn parse(field: &Field, case: Case) -> Result<Option<Self>> {
        let Some(name) = &field.ident else { return Ok(None) };
        let plain = name.to_string();
        let plain = plain.strip_prefix("r#").unwrap_or(&plain);
        let mut wire = case.apply(plain);
        let (mut is_skipped, mut is_flat) = (false, false);
        let (mut is_nested, mut key) = (false, None::<LitStr>);
        for attribute in &field.attrs {
            if attribute.path().is_ident("serde") {
                attribute.parse_nested_meta(|meta| {
                    if meta.path.is_ident("rename") && meta.input.peek(Token![=]) {
                        wire = meta.value()?.parse::<LitStr>()?.value();
                        return Ok(());
                    }
                    is_skipped |= meta.path.is_ident("skip");
                    is_skipped |= meta.path.is_ident("skip_serializing");
                    is_flat |= meta.path.is_ident("flatten");
                    skip(&meta)
                })?;
            } else if attribute.path().is_ident("partial") {
                attribute.parse_nested_meta(|meta| {
                    if meta.path.is_ident("nested") {
                        is_nested = true;
                    } else if meta.path.is_ident("key") {
                        key = Some(meta.value()?.parse()?);
                    } else {
                        return Err(meta.error("expected `nested` or `key = \"name\"`"));
                    }
                    Ok(())
                })?;
            }
        }
        if is_skipped {
            return Ok(None);
        }
        if is_flat {
            let text = "a flattened field has no name to set: apply it with `Apply::partial`";
            return Err(Error::new_spanned(field, text));
        }
        let of = ["Option", "Box"]
            .iter()
            .fold(field.ty.clone(), |ty, wrapper| argument(&ty, wrapper).unwrap_or(ty));
        let item = argument(&of, "Vec");
        let value = match (key, is_nested, item) {
            (Some(key), _, Some(item)) => Value::Keyed(item, key.value()),
            (Some(key), _, None) => {
                return Err(Error::new_spanned(key, "only a `Vec` has items with keys"));
            }
            (None, true, Some(item)) => Value::Item(item),
            (None, true, None) => Value::Object(of),
            (None, false, _) if is_string(&of) => Value::Text,
            (None, false, _) => Value::Whole(of),
        };
        let is_doc = |attribute: &&Attribute| attribute.path().is_ident("doc");
        let docs = field.attrs.iter().filter(is_doc).cloned().collect();
        Ok(Some(Self { field: name.clone(), wire, docs, value }))
    }

    fn define(&self, krate: &Path, visibility: &Visibility) -> TokenStream {
        let Self { field, wire, docs, value } = self;
        let verb = match value {
            Value::Whole(_) | Value::Text => "Sets",
            Value::Object(_) => "Changes",
            Value::Item(_) => "Adds an item to",
            Value::Keyed(..) => "Changes the item with this key of",
        };
        let doc = format!("{verb} `{wire}`.");
        let docs = quote! {
            #[doc = #doc]
            #[doc = ""]
            #(#docs)*
        };
        let into_string = quote!(impl ::core::convert::Into<::std::string::String>);
        let change = |of: &Type| {
            let partial = quote!(<#of as #krate::HasPartial>::Partial);
            quote!(change: impl ::core::ops::FnOnce(#partial) -> #partial)
        };
        let (parameters, call) = match value {
            Value::Whole(ty) => (quote!(value: #ty), quote!(set_encoded(#wire, &value))),
            Value::Text => (
                quote!(value: #into_string),
                quote!(set(#wire, ::core::convert::Into::<::std::string::String>::into(value))),
            ),
            Value::Object(of) => (change(of), quote!(change(#wire, change))),
            Value::Item(of) => (change(of), quote!(push(#wire, change))),
            Value::Keyed(of, key) => {
                let change = change(of);
                (
                    quote!(key: #into_string, #change),
                    quote!(item(#wire, [(#key, #krate::json_text(key))], change)),
                )
            }
        };
        quote! {
            #docs
            #visibility fn #field(mut self, #parameters) -> Self {
                self.0.#call;
                self
            }
        }
    }
}

/// The argument of a type with one, such as the `T` of `Option<T>`.
fn argument(ty: &Type, name: &str) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let arguments: &Punctuated<GenericArgument, Token![,]> = &arguments.args;
    match arguments.first() {
        Some(GenericArgument::Type(ty)) => Some(ty.clone()),
        _ => None,
    }
}

fn is_string(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "String")
}

impl Case {
    fn parse(text: &LitStr) -> Result<Self> {
        Ok(match text.value().as_str() {
            "lowercase" => Self::Lower,
            "UPPERCASE" => Self::Upper,
            "PascalCase" => Self::Pascal,
            "camelCase" => Self::Camel,
            "snake_case" => Self::Same,
            "SCREAMING_SNAKE_CASE" => Self::ScreamingSnake,
            "kebab-case" => Self::Kebab,
            "SCREAMING-KEBAB-CASE" => Self::ScreamingKebab,
            _ => return Err(Error::new_spanned(text, "not a case of serde")),
        })
    }

    /// The name of a field on the wire, as serde derives it.
    fn apply(self, field: &str) -> String {
        let pascal = || -> String {
            let words = field.split('_').map(|word| {
                let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
                first.to_ascii_uppercase() + rest
            });
            words.collect()
        };
        match self {
            Self::Same | Self::Lower => field.to_owned(),
            Self::Upper | Self::ScreamingSnake => field.to_ascii_uppercase(),
            Self::Pascal => pascal(),
            Self::Camel => {
                let pascal = pascal();
                let (first, rest) =
                    pascal.split_at(pascal.chars().next().map_or(0, char::len_utf8));
                first.to_ascii_lowercase() + rest
            }
            Self::Kebab => field.replace('_', "-"),
            Self::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
        }
    }
}
