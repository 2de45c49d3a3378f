//! From tokens to expressions. Macros are taken apart here.

use super::Fault;
use super::ast::{Binary, Expr, Kind, Literal, Loop, Purpose, Unary};
use super::lex::{Constant, Token, lex};
use crate::node::Pattern;

/// How deep expressions may nest, and how long they may be: as much as any rule that was meant to be read.
const DEPTH: usize = 64;
const HEIGHT: usize = 300;
const LENGTH: usize = 100_000;

pub(super) fn parse(source: &str) -> Result<Expr, Fault> {
    if source.len() > LENGTH {
        return Err(Fault(format!("expression code point size exceeds limit: size: {}, limit {LENGTH}", source.len())));
    }
    let mut parser = Parser { source, tokens: lex(source)?, next: 0, depth: 0, negative: false };
    let expression = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expression),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<(Token, usize)>,
    next: usize,
    depth: usize,
    /// Whether a minus stands before the number that follows.
    negative: bool,
}

/// The operators of one strength, weakest first.
const LEVELS: [&[(&str, Binary)]; 3] = [
    &[
        ("==", Binary::Equal),
        ("!=", Binary::NotEqual),
        ("<=", Binary::LessEqual),
        (">=", Binary::GreaterEqual),
        ("<", Binary::Less),
        (">", Binary::Greater),
        ("in", Binary::In),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Modulo)],
];

impl Parser<'_> {
    fn expression(&mut self) -> Result<Expr, Fault> {
        self.nested(|parser| {
            let condition = parser.disjunction()?;
            let at = parser.at();
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.disjunction()?;
            parser.demand(":")?;
            let no = parser.expression()?;
            parser.make(Kind::Choice(Box::new(condition), Box::new(yes), Box::new(no)), at)
        })
    }

    fn disjunction(&mut self) -> Result<Expr, Fault> {
        let mut parts = vec![self.conjunction()?];
        let at = self.at();
        while self.take("||") {
            parts.push(self.conjunction()?);
        }
        self.chain(parts, Kind::Or, at)
    }

    fn conjunction(&mut self) -> Result<Expr, Fault> {
        let mut parts = vec![self.operation(0)?];
        let at = self.at();
        while self.take("&&") {
            parts.push(self.operation(0)?);
        }
        self.chain(parts, Kind::And, at)
    }

    /// A chain of one is its only part.
    fn chain(&self, mut parts: Vec<Expr>, kind: fn(Vec<Expr>) -> Kind, at: usize) -> Result<Expr, Fault> {
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            last => {
                parts.extend(last);
                self.make(kind(parts), at)
            }
        }
    }

    fn make(&self, kind: Kind, at: usize) -> Result<Expr, Fault> {
        let expression = Expr::new(kind, at);
        if expression.height() > HEIGHT {
            return Err(Fault::at(self.source, at, "expression recursion limit exceeded"));
        }
        Ok(expression)
    }

    fn operation(&mut self, level: usize) -> Result<Expr, Fault> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.operation(level + 1)?;
        loop {
            let at = self.at();
            let Some((_, operator)) = operators.iter().find(|(symbol, _)| self.take(symbol)) else { return Ok(left) };
            let right = self.operation(level + 1)?;
            left = self.make(Kind::Binary(*operator, Box::new(left), Box::new(right)), at)?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Fault> {
        let at = self.at();
        if self.take("!") {
            let inner = self.nested(Self::unary)?;
            return self.make(Kind::Unary(Unary::Not, Box::new(inner)), at);
        }
        if self.take("-") {
            // A minus before a number is part of it: the smallest one has no positive twin.
            if let Token::Literal(Constant(Literal::Int(_) | Literal::Double(_))) = self.peek() {
                self.negative = true;
                return self.member();
            }
            let inner = self.nested(Self::unary)?;
            return self.make(Kind::Unary(Unary::Negate, Box::new(inner)), at);
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expr, Fault> {
        let mut of = self.primary()?;
        loop {
            let at = self.at();
            if self.take(".") {
                let optional = self.take("?");
                let field = self.ident()?;
                let call = self.at();
                of = if !optional && self.take("(") {
                    let arguments = self.arguments()?;
                    self.call(Some(of), field, arguments, call)?
                } else {
                    self.make(Kind::Select { of: Box::new(of), field, optional }, at)?
                };
            } else if self.take("[") {
                let optional = self.take("?");
                let index = Box::new(self.expression()?);
                self.demand("]")?;
                of = self.make(Kind::Index { of: Box::new(of), index, optional }, at)?;
            } else {
                return Ok(of);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, Fault> {
        let at = self.at();
        match self.peek().clone() {
            Token::Literal(Constant(literal)) => {
                self.next += 1;
                let literal = match (literal, std::mem::take(&mut self.negative)) {
                    (Literal::Int(i64::MIN), false) => {
                        return Err(Fault::at(self.source, at, "invalid int literal"));
                    }
                    (Literal::Int(number), true) => Literal::Int(number.wrapping_neg()),
                    (Literal::Double(number), true) => Literal::Double(-number),
                    (literal, _) => literal,
                };
                self.make(Kind::Literal(literal), at)
            }
            Token::Ident(name) => {
                self.next += 1;
                let call = self.at();
                if self.take("(") {
                    let arguments = self.arguments()?;
                    return self.call(None, name, arguments, call);
                }
                self.make(Kind::Ident(name), at)
            }
            Token::Symbol("(") => {
                self.next += 1;
                let inner = self.expression()?;
                self.demand(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => {
                self.next += 1;
                let items = self.list("]", |parser| {
                    let optional = parser.take("?");
                    Ok((parser.expression()?, optional))
                })?;
                self.make(Kind::List(items), at)
            }
            Token::Symbol("{") => {
                self.next += 1;
                let entries = self.list("}", |parser| {
                    let optional = parser.take("?");
                    let key = parser.expression()?;
                    parser.demand(":")?;
                    Ok((key, parser.expression()?, optional))
                })?;
                self.make(Kind::Map(entries), at)
            }
            Token::Symbol(_) | Token::End => Err(self.unexpected(
                "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, \
                 IDENTIFIER}",
            )),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Fault> {
        self.list(")", Self::expression)
    }

    /// Entries up to a closing symbol; a comma may follow the last.
    fn list<T>(
        &mut self,
        end: &'static str,
        mut entry: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut entries = Vec::new();
        while !self.take(end) {
            entries.push(entry(self)?);
            if !self.take(",") {
                self.demand(end)?;
                break;
            }
        }
        Ok(entries)
    }

    /// A call, or the macro of that name and shape.
    fn call(
        &mut self,
        target: Option<Expr>,
        function: Box<str>,
        mut arguments: Vec<Expr>,
        at: usize,
    ) -> Result<Expr, Fault> {
        let count = arguments.len();
        let kind = match (target, &*function, count) {
            (None, "has", 1) => match arguments.pop().map(|argument| (argument.kind, argument.at)) {
                Some((Kind::Select { of, field, optional: false }, _)) => Kind::Has { of, field },
                other => {
                    let at = other.map_or(at, |(_, at)| at);
                    return Err(Fault::at(self.source, at, "invalid argument to has() macro"));
                }
            },
            (Some(of), "optMap" | "optFlatMap", 2) => {
                let body = Box::new(arguments.pop().ok_or_else(|| self.unexpected("expression"))?);
                let name = self.variable(arguments.pop(), at)?;
                Kind::OptionalMap { of: Box::new(of), name, body, flat: &*function == "optFlatMap" }
            }
            (Some(range), name, 2..=4) if purpose(name, count).is_some() => {
                let (purpose, two, filtered) = purpose(name, count).ok_or_else(|| self.unexpected("macro"))?;
                let body = arguments.pop().ok_or_else(|| self.unexpected("expression"))?;
                let filter = if filtered { arguments.pop() } else { None };
                let second = if two { Some(self.variable(arguments.pop(), at)?) } else { None };
                let name = self.variable(arguments.pop(), at)?;
                Kind::Loop(Box::new(Loop { purpose, range, name, second, filter, body }))
            }
            (target, ..) => {
                let pattern = match (&*function, arguments.first().map(|argument| &argument.kind)) {
                    ("matches" | "find" | "findAll", Some(Kind::Literal(Literal::String(pattern)))) => {
                        Some(Box::new(Pattern::new(pattern)))
                    }
                    _ => None,
                };
                Kind::Call { target: target.map(Box::new), function, arguments, pattern }
            }
        };
        self.make(kind, at)
    }

    fn variable(&self, argument: Option<Expr>, at: usize) -> Result<Box<str>, Fault> {
        match argument.map(|argument| argument.kind) {
            Some(Kind::Ident(name)) => Ok(name),
            _ => Err(Fault::at(self.source, at, "argument must be a simple name")),
        }
    }

    fn nested<T>(&mut self, then: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Fault::at(self.source, self.at(), "expression recursion limit exceeded"));
        }
        let result = then(self);
        self.depth -= 1;
        result
    }

    fn ident(&mut self) -> Result<Box<str>, Fault> {
        match self.peek().clone() {
            Token::Ident(name) => {
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(token, _)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.source.len(), |(_, at)| *at)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let taken = matches!(self.peek(), Token::Symbol(next) if *next == symbol);
        self.next += usize::from(taken);
        taken
    }

    fn demand(&mut self, symbol: &'static str) -> Result<(), Fault> {
        if self.take(symbol) {
            return Ok(());
        }
        match self.peek() {
            Token::End => {
                let problem = format!("Syntax error: missing '{symbol}' at '<EOF>'");
                Err(Fault::at(self.source, self.at(), problem))
            }
            _ => Err(self.unexpected(&format!("'{symbol}'"))),
        }
    }

    fn unexpected(&self, expected: &str) -> Fault {
        let at = self.at();
        let end = self.tokens.get(self.next + 1).map_or(self.source.len(), |(_, at)| *at);
        let found = match self.peek() {
            Token::End => "<EOF>",
            _ => self.source.get(at..end).unwrap_or_default().trim(),
        };
        Fault::at(self.source, at, format_args!("Syntax error: mismatched input '{found}' expecting {expected}"))
    }
}

/// What a macro is for, whether it binds two names, and whether it filters.
fn purpose(name: &str, arguments: usize) -> Option<(Purpose, bool, bool)> {
    Some(match (name, arguments) {
        ("all", 2) => (Purpose::All, false, false),
        ("all", 3) => (Purpose::All, true, false),
        ("exists", 2) => (Purpose::Exists, false, false),
        ("exists", 3) => (Purpose::Exists, true, false),
        ("exists_one" | "existsOne", 2) => (Purpose::ExistsOne, false, false),
        ("exists_one" | "existsOne", 3) => (Purpose::ExistsOne, true, false),
        ("map", 2) => (Purpose::Map, false, false),
        ("map", 3) => (Purpose::Map, false, true),
        ("filter", 2) => (Purpose::Filter, false, false),
        ("transformList", 3) => (Purpose::Map, true, false),
        ("transformList", 4) => (Purpose::Map, true, true),
        ("transformMap", 3) => (Purpose::TransformMap, true, false),
        ("transformMap", 4) => (Purpose::TransformMap, true, true),
        _ => return None,
    })
}
