//! Expressions.

use crate::node::Pattern;

/// One expression and where it stands in the source.
#[derive(Debug)]
pub(super) struct Expr {
    pub(super) kind: Kind,
    pub(super) at: usize,
    /// How deep this nests: every walk recurses that far.
    height: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    Literal(Literal),
    Ident(Box<str>),
    /// `of.field`, `of.?field`.
    Select {
        of: Box<Expr>,
        field: Box<str>,
        optional: bool,
    },
    /// `has(of.field)`.
    Has {
        of: Box<Expr>,
        field: Box<str>,
    },
    Index {
        of: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: Box<str>,
        arguments: Vec<Expr>,
        /// The pattern that stands in the call itself: it is compiled once.
        pattern: Option<Box<Pattern>>,
    },
    /// Elements; a marked one is an optional that is left out when empty.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// Chains are flat, however long.
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Loop(Box<Loop>),
    /// `of.optMap(name, body)`; the flat form's body is an optional itself.
    OptionalMap {
        of: Box<Expr>,
        name: Box<str>,
        body: Box<Expr>,
        flat: bool,
    },
}

/// A macro that walks a list or a map.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) purpose: Purpose,
    pub(super) range: Expr,
    pub(super) name: Box<str>,
    /// The second name of the two-variable forms: there the first is the index or the key.
    pub(super) second: Option<Box<str>>,
    pub(super) filter: Option<Expr>,
    pub(super) body: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Purpose {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformMap,
}

#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unary {
    Not,
    Negate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

impl Binary {
    /// The operator's name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterEqual => "_>=_",
            Self::In => "@in",
        }
    }
}

impl Expr {
    pub(super) fn new(kind: Kind, at: usize) -> Self {
        let height = kind.children().into_iter().map(|child| child.height).max().unwrap_or_default() + 1;
        Self { kind, at, height }
    }

    pub(super) fn height(&self) -> usize {
        self.height
    }

    /// Whether a name occurs as a variable. Names that a macro binds count too: no rule binds `oldSelf`.
    pub(super) fn mentions(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(ident) if **ident == *name)
            || self.kind.children().into_iter().any(|child| child.mentions(name))
    }
}

impl Kind {
    fn children(&self) -> Vec<&Expr> {
        match self {
            Self::Literal(_) | Self::Ident(_) => Vec::new(),
            Self::Select { of, .. } | Self::Has { of, .. } | Self::Unary(_, of) => vec![of],
            Self::Index { of: one, index: other, .. }
            | Self::Binary(_, one, other)
            | Self::OptionalMap { of: one, body: other, .. } => vec![one, other],
            Self::And(parts) | Self::Or(parts) => parts.iter().collect(),
            Self::Choice(one, other, third) => vec![one, other, third],
            Self::Call { target, arguments, .. } => target.as_deref().into_iter().chain(arguments).collect(),
            Self::List(items) => items.iter().map(|(item, _)| item).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(key, value, _)| [key, value]).collect(),
            Self::Loop(walk) => [&walk.range, &walk.body].into_iter().chain(&walk.filter).collect(),
        }
    }
}
