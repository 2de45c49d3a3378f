//! nftables: whole tables of ours, put in place in one transaction by `nft`.

use std::process::Stdio;
use std::time::Duration;

use nftables::expr::{
    BinaryOperation, CT, Expression, Meta, MetaKey, NamedExpression, Payload, PayloadField, Prefix, SetItem,
};
use nftables::schema::{Chain, NfCmd, NfListObject, NfObject, Nftables, Rule, Table};
use nftables::stmt::{JumpTarget, Match, NAT, Operator, Statement};
use nftables::types::{NfChainPolicy, NfChainType, NfFamily, NfHook};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::guest_network::Protocol;

/// A transaction takes milliseconds; a busy machine may need seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why rules are not in place.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// It could not be run at all.
    #[error("cannot run nft")]
    Run(#[source] std::io::Error),
    /// It did not come to an end.
    #[error("nft did not answer in time")]
    TimedOut,
    /// It said no.
    #[error("nft refused the rules: {0}")]
    Refused(String),
}

/// A table in the making. It replaces the table of the same name.
pub(crate) struct TableOf {
    family: NfFamily,
    name: String,
    objects: Vec<NfObject<'static>>,
}

impl TableOf {
    pub(crate) fn new(family: NfFamily, name: &str) -> Self {
        let mut this = Self { family, name: name.to_owned(), objects: removal(family, name) };
        this.objects.push(add(NfListObject::Table(table(family, name))));
        this
    }

    /// A chain for address translation.
    pub(crate) fn nat_chain(&mut self, name: &'static str, hook: NfHook, priority: i32) {
        self.hooked(name, NfChainType::NAT, hook, priority);
    }

    /// A chain that lets packets pass or not.
    pub(crate) fn filter_chain(&mut self, name: &'static str, hook: NfHook, priority: i32) {
        self.hooked(name, NfChainType::Filter, hook, priority);
    }

    /// A chain that other chains lead to.
    pub(crate) fn chain(&mut self, name: &str) {
        self.objects.push(add(NfListObject::Chain(Chain {
            family: self.family,
            table: self.name.clone().into(),
            name: name.to_owned().into(),
            ..Chain::default()
        })));
    }

    fn hooked(&mut self, name: &'static str, kind: NfChainType, hook: NfHook, priority: i32) {
        self.objects.push(add(NfListObject::Chain(Chain {
            family: self.family,
            table: self.name.clone().into(),
            name: name.into(),
            _type: Some(kind),
            hook: Some(hook),
            prio: Some(priority),
            policy: Some(NfChainPolicy::Accept),
            ..Chain::default()
        })));
    }

    pub(crate) fn rule(&mut self, chain: &str, statements: Vec<Statement<'static>>) {
        self.objects.push(add(NfListObject::Rule(Rule {
            family: self.family,
            table: self.name.clone().into(),
            chain: chain.to_owned().into(),
            expr: statements.into(),
            ..Rule::default()
        })));
    }

    pub(crate) fn into_objects(self) -> Vec<NfObject<'static>> {
        self.objects
    }
}

/// What removes a table that may not exist: an addition changes nothing of one that does.
pub(crate) fn removal(family: NfFamily, name: &str) -> Vec<NfObject<'static>> {
    let table = NfListObject::Table(table(family, name));
    vec![add(table.clone()), NfObject::CmdObject(NfCmd::Delete(table))]
}

/// Puts all in place, or nothing, in the namespace of the calling thread.
pub(crate) async fn apply(objects: Vec<NfObject<'static>>) -> Result<(), NftError> {
    let document = Nftables { objects: objects.into() };
    let input = serde_json::to_vec(&document).map_err(|error| NftError::Run(error.into()))?;
    run(&["-j", "-f", "-"], &input).await.map(|_| ())
}

/// Runs `nft` with input, and answers what it wrote.
pub(crate) async fn run(arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, NftError> {
    let mut command = Command::new("nft");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let whole = async {
        let mut child = command.spawn().map_err(NftError::Run)?;
        if let Some(mut stdin) = child.stdin.take() {
            // If it ends without reading, its own words say more than a broken pipe.
            let _ = stdin.write_all(input).await;
        }
        child.wait_with_output().await.map_err(NftError::Run)
    };
    let output = tokio::time::timeout(TIMEOUT, whole).await.map_err(|_| NftError::TimedOut)??;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(NftError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn table(family: NfFamily, name: &str) -> Table<'static> {
    Table { family, name: name.to_owned().into(), handle: None }
}

fn add(object: NfListObject<'static>) -> NfObject<'static> {
    NfObject::CmdObject(NfCmd::Add(object))
}

/// The link that a packet came in by.
pub(crate) fn comes_by(link: &str) -> Statement<'static> {
    equal(meta(MetaKey::Iifname), text(link))
}

/// The link that a packet goes out by.
pub(crate) fn goes_by(link: &str) -> Statement<'static> {
    equal(meta(MetaKey::Oifname), text(link))
}

/// Any other link.
pub(crate) fn does_not_go_by(link: &str) -> Statement<'static> {
    compare(meta(MetaKey::Oifname), Operator::NEQ, text(link))
}

/// A field of a header, such as `ip` `saddr`.
pub(crate) fn field_is(protocol: &'static str, name: &'static str, value: Expression<'static>) -> Statement<'static> {
    equal(field(protocol, name), value)
}

/// Any other value of it.
pub(crate) fn field_is_not(
    protocol: &'static str,
    name: &'static str,
    value: Expression<'static>,
) -> Statement<'static> {
    compare(field(protocol, name), Operator::NEQ, value)
}

/// A value of it, but for the bits that the mask does not have.
pub(crate) fn field_is_masked(
    protocol: &'static str,
    name: &'static str,
    mask: &'static str,
    value: &'static str,
) -> Statement<'static> {
    let masked = BinaryOperation::AND(field(protocol, name), text(mask));
    equal(Expression::BinaryOperation(Box::new(masked)), text(value))
}

/// Any of these, as a value.
pub(crate) fn any(values: impl IntoIterator<Item = Expression<'static>>) -> Expression<'static> {
    Expression::Named(NamedExpression::Set(values.into_iter().map(SetItem::Element).collect()))
}

/// Lets a packet pass.
pub(crate) fn accept() -> Statement<'static> {
    Statement::Accept(None)
}

/// Loses a packet.
pub(crate) fn drop() -> Statement<'static> {
    Statement::Drop(None)
}

/// Loses a packet, and tells its sender that nobody listens there.
pub(crate) fn refuse() -> Statement<'static> {
    Statement::Reject(None)
}

/// Belongs to what was let pass before, or to what the machine itself has begun.
pub(crate) fn is_answer() -> Statement<'static> {
    let state = CT { key: "state".into(), family: None, dir: None };
    let known = Expression::List(vec![text("established"), text("related")]);
    compare(Expression::Named(NamedExpression::CT(state)), Operator::IN, known)
}

/// The protocol that a packet carries, such as `icmp`.
pub(crate) fn carries(protocol: &'static str) -> Statement<'static> {
    equal(meta(MetaKey::L4proto), text(protocol))
}

/// A port that a packet is for.
pub(crate) fn is_for(protocol: Protocol, port: u16) -> Statement<'static> {
    let header = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    field_is(header, "dport", Expression::Number(port.into()))
}

/// Goes on in another chain.
pub(crate) fn jump(chain: &str) -> Statement<'static> {
    Statement::Jump(JumpTarget { target: chain.to_owned().into() })
}

/// A network, as a value.
pub(crate) fn prefix(address: &impl ToString, length: u8) -> Expression<'static> {
    let addr = Box::new(text(&address.to_string()));
    Expression::Named(NamedExpression::Prefix(Prefix { addr, len: length.into() }))
}

/// Text or an address, as a value.
pub(crate) fn text(text: &str) -> Expression<'static> {
    Expression::String(text.to_owned().into())
}

/// Another destination.
pub(crate) fn to_destination(address: &impl ToString) -> Statement<'static> {
    Statement::DNAT(Some(translation(Some(text(&address.to_string())))))
}

/// Another source.
pub(crate) fn from_source(address: &impl ToString) -> Statement<'static> {
    Statement::SNAT(Some(translation(Some(text(&address.to_string())))))
}

/// The address of the link that it leaves by as its source.
pub(crate) fn masquerade() -> Statement<'static> {
    Statement::Masquerade(None)
}

fn field(protocol: &'static str, name: &'static str) -> Expression<'static> {
    let field = PayloadField { protocol: protocol.into(), field: name.into() };
    Expression::Named(NamedExpression::Payload(Payload::PayloadField(field)))
}

fn translation(addr: Option<Expression<'static>>) -> NAT<'static> {
    NAT { addr, family: None, port: None, flags: None }
}

fn meta(key: MetaKey) -> Expression<'static> {
    Expression::Named(NamedExpression::Meta(Meta { key }))
}

fn equal(left: Expression<'static>, right: Expression<'static>) -> Statement<'static> {
    compare(left, Operator::EQ, right)
}

fn compare(left: Expression<'static>, op: Operator, right: Expression<'static>) -> Statement<'static> {
    Statement::Match(Match { left, right, op })
}
