//! Guests on the network: what they are told, whom they reach, who reaches them.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use serde_json::json;

use super::Test;
use super::guests::{Terminal, add_volume, bare, linux, template, write};
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("guests_reach_others_and_are_reached", guests_reach_others_and_are_reached),
    ("networks_that_nobody_makes_are_refused_by_name", networks_that_nobody_makes_are_refused_by_name),
];

/// The bridge's addresses.
const GATEWAY4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 199, 0, 1));
const GATEWAY6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1));
/// The domain of the test, and the one name in it: the gateway's.
const DOMAIN: &str = "orlop.example";
const GATE: &str = "gate.orlop.example";
/// The guest has no client for DHCPv6: its address is set, its route comes by itself.
const NETWORK_DATA: &str = "version: 2\nethernets:\n  eth0:\n    dhcp4: true\n    addresses:\n    - fd10:0:2::2/120\n";
/// What a lease is seen with: the variables that a client of DHCP gives its script.
const LEASE: &str = "printf '#!/bin/sh\\n[ $1 = bound ] && set\\ntrue\\n' > /tmp/lease && chmod +x /tmp/lease && \
                     udhcpc -f -q -n -i eth0 -O mtu -O search -O hostname -s /tmp/lease 2> /dev/null";
/// The guest's address, when it is known that nobody else has it: until then it is not used.
const ADDRESS6: &str = "for try in $(seq 3000); do ip -6 addr show dev eth0 | grep fd10: | grep -v tentative && break; usleep 100000; done";
/// The guest's way out of IPv6, when it has one.
const ROUTE6: &str = "for try in $(seq 3000); do ip -6 route show default | grep via && break; usleep 100000; done";
const PATIENCE: Duration = testkit::NEVER;
/// A port of the machine that guests are allowed to reach, and one that they are not.
const PORT: u16 = 8099;
const CLOSED: u16 = 8098;

fn guests_reach_others_and_are_reached() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let resolver = folder.path().join("resolv.conf");
    write(&resolver, &format!("nameserver {GATEWAY4}\nsearch {DOMAIN}\n"))?;
    let allowed = PORT.to_string();
    let machine =
        TestHost::with(&["--resolv-conf", resolver.to_str().context("a path")?, "--allow-host-port", &allowed])?;
    answer_http(PORT)?;
    answer_http(CLOSED)?;
    answer_names(UdpSocket::bind((GATEWAY4, 53))?);
    let mut open = linux("open", "Always")?;
    add_volume(
        &mut open,
        "init",
        "cloudInitNoCloud",
        json!({ "userData": "#!/bin/true", "networkData": NETWORK_DATA }),
    )?;
    template(&mut open)["readinessProbe"] = json!({ "httpGet": { "port": 8080, "path": "/page" }, "periodSeconds": 1 });
    machine.create::<VirtualMachine>(open)?;
    let mut listed = linux("listed", "Always")?;
    template(&mut listed)["domain"]["devices"]["interfaces"][0]["ports"] = json!([{ "port": 22 }]);
    template(&mut listed)["readinessProbe"] = json!({ "tcpSocket": { "port": 22 }, "periodSeconds": 1 });
    machine.create::<VirtualMachine>(listed)?;

    let open = machine.phase("open", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "open")?;
    is_told(&mut terminal)?;
    let pod = addresses(&open)?;
    reaches(&mut terminal, &pod)?;
    names(&mut terminal, &pod)?;
    does_not_reach(&mut terminal, &machine)?;
    ensure!(!is_ready(machine.get::<VirtualMachine>("open")?.as_ref()), "its probe has nobody to ask");
    serve(&mut terminal)?;
    for vm in ["open", "listed"] {
        machine.wait::<VirtualMachine>(vm, "ready by its probe", is_ready)?;
    }
    for address in &pod {
        ensure!(fetch((*address, 8080).into())?.ends_with("from the guest\n"), "{address} serves something else");
        ensure!(greeting((*address, 22).into())?.starts_with("SSH-2.0-"), "{address} has no SSH");
    }

    let mut other = Terminal::log_in(&machine, "listed")?;
    serve(&mut other)?;
    let behind = addresses(&machine.phase("listed", Phase::Running, None)?)?;
    let [four, _] = behind[..] else { anyhow::bail!("{behind:?}") };
    ensure!(greeting((four, 22).into())?.starts_with("SSH-2.0-"), "the listed port is closed");
    let closed = TcpStream::connect_timeout(&(four, 8080).into(), PATIENCE);
    ensure!(closed.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused), "{closed:?}");
    // Guests reach each other as they reach anybody.
    ensure!(other.run(&format!("wget -q -O - http://{}:8080/page", pod[0]))? == "from the guest");

    stays(&machine, terminal, &open)
}

fn is_ready(vm: Option<&VirtualMachine>) -> bool {
    vm.is_some_and(|vm| vm.status.as_ref().is_some_and(|status| status.ready == Some(true)))
}

/// The pod's addresses: the guest's, to everybody else.
pub(crate) fn addresses(vmi: &VirtualMachineInstance) -> Result<Vec<IpAddr>> {
    let interface =
        vmi.status.as_ref().and_then(|status| status.interfaces.as_ref()?.first()).context("no interface")?;
    interface.ip_addresses.iter().flatten().map(|text| Ok(text.parse()?)).collect()
}

fn is_told(terminal: &mut Terminal) -> Result<()> {
    let seen = terminal.run("ip -4 addr show dev eth0")?;
    ensure!(seen.contains("inet 10.0.2.2/24"), "{seen}");
    let route = terminal.run("ip route show default")?;
    ensure!(route.starts_with("default via 10.0.2.1 dev eth0"), "{route}");
    let lease = terminal.run(LEASE)?;
    let wanted = [
        "ip='10.0.2.2'",
        "subnet='255.255.255.0'",
        "router='10.0.2.1'",
        "mtu='1500'",
        "dns='10.199.0.1'",
        "search='orlop.example'",
        "hostname='open'",
    ];
    for wanted in wanted {
        ensure!(lease.lines().any(|line| line == wanted), "{wanted} is not in\n{lease}");
    }
    ensure!(terminal.run("cat /sys/class/net/eth0/mtu")? == "1500");
    Ok(())
}

/// The guest's requests come from its pod, in both families.
fn reaches(terminal: &mut Terminal, pod: &[IpAddr]) -> Result<()> {
    // Advertised, when the guest has looked for routers.
    let route = terminal.run(ROUTE6)?;
    ensure!(route.starts_with("default via fe80:"), "{route:?}");
    let address = terminal.run(ADDRESS6)?;
    ensure!(address.contains("fd10:0:2::2/120"), "{address:?}");
    let of4 = terminal.run(&format!("wget -q -O - http://{GATEWAY4}:{PORT}/"))?;
    let of6 = terminal.run(&format!("wget -q -O - http://[{GATEWAY6}]:{PORT}/"))?;
    let seen: Vec<IpAddr> = vec![of4.parse()?, of6.parse()?];
    ensure!(seen == pod, "{seen:?} is not {pod:?}");
    Ok(())
}

/// Of the machine a guest has what was allowed, and the API at its gateway.
fn does_not_reach(terminal: &mut Terminal, machine: &TestHost) -> Result<()> {
    let api = machine.api_port()?;
    for to in [GATEWAY4.to_string(), format!("[{GATEWAY6}]")] {
        let mut answer = |port: u16| terminal.run(&format!("wget -O - http://{to}:{port}/ 2>&1; true"));
        let (closed, api) = (answer(CLOSED)?, answer(api)?);
        ensure!(closed.contains("refused"), "{to}: {closed}");
        // It is there, and has no answer for who does not speak TLS.
        ensure!(api.contains("error getting response"), "the API at {to}: {api}");
    }
    Ok(())
}

fn names(terminal: &mut Terminal, pod: &[IpAddr]) -> Result<()> {
    let resolver = terminal.run("cat /etc/resolv.conf")?;
    ensure!(resolver.contains("nameserver 10.199.0.1"), "{resolver}");
    // Its client does not write down what it is told of domains.
    terminal.run(&format!("echo search {DOMAIN} >> /etc/resolv.conf"))?;
    for name in [GATE, "gate"] {
        let found = terminal.run(&format!("nslookup {name}"))?;
        for address in [GATEWAY4, GATEWAY6] {
            ensure!(found.lines().any(|line| line == format!("Address: {address}")), "{name}: {found}");
        }
    }
    ensure!(terminal.run("nslookup nobody.orlop.example").is_err(), "nobody is somebody");
    for name in [GATE, "gate"] {
        let seen = terminal.run(&format!("wget -q -O - http://{name}:{PORT}/"))?;
        ensure!(pod.contains(&seen.parse()?), "{name}: {seen}");
    }
    Ok(())
}

/// A page of the guest.
fn serve(terminal: &mut Terminal) -> Result<()> {
    terminal.run("mkdir /tmp/www && echo from the guest > /tmp/www/page && httpd -p 8080 -h /tmp/www")?;
    ensure!(terminal.run("wget -q -O - http://127.0.0.1:8080/page")? == "from the guest");
    Ok(())
}

/// A restart changes no address, neither for the guest nor for the others.
fn stays(machine: &TestHost, mut terminal: Terminal, open: &VirtualMachineInstance) -> Result<()> {
    let mac = terminal.run("cat /sys/class/net/eth0/address")?;
    drop(terminal);
    e2e::output(&mut machine.orlop(&["restart", "open"]))?;
    let again = machine.phase("open", Phase::Running, open.metadata.uid.as_deref())?;
    let mut terminal = Terminal::log_in(machine, "open")?;
    ensure!(terminal.run("cat /sys/class/net/eth0/address")? == mac);
    ensure!(addresses(&again)? == addresses(open)?);
    reaches(&mut terminal, &addresses(open)?)
}

fn networks_that_nobody_makes_are_refused_by_name() -> Result<()> {
    let machine = TestHost::up()?;
    let refused = |interfaces: serde_json::Value, networks: serde_json::Value| -> Result<String> {
        let mut vm = bare("refused", "Always");
        template(&mut vm)["domain"]["devices"]["interfaces"] = interfaces;
        template(&mut vm)["networks"] = networks;
        match machine.create::<VirtualMachine>(vm) {
            Ok(made) => anyhow::bail!("{made:?}"),
            Err(error) => Ok(format!("{error:#}")),
        }
    };
    let pod = json!({ "name": "default", "pod": {} });
    let bridge = refused(json!([{ "name": "default", "bridge": {} }]), json!([pod]))?;
    ensure!(bridge.contains("spec.template.spec.domain.devices.interfaces[0].bridge"), "{bridge}");
    let both = json!([{ "name": "default", "masquerade": {} }, { "name": "second", "bridge": {} }]);
    let second = json!({ "name": "second", "multus": { "networkName": "lan" } });
    let second = refused(both, json!([pod, second]))?;
    ensure!(second.contains("spec.template.spec.networks[1].multus"), "{second}");
    // Who asks for nothing gets what there is.
    let mut plain = bare("plain", "Always");
    let spec = template(&mut plain);
    spec["domain"]["devices"] = json!({});
    spec["networks"] = json!([]);
    machine.create::<VirtualMachine>(plain)?;
    let vmi = machine.phase("plain", Phase::Running, None)?;
    let interfaces = vmi.spec.domain.devices.interfaces.context("no interface")?;
    ensure!(interfaces.len() == 1 && interfaces[0].masquerade.is_some(), "{interfaces:?}");
    Ok(())
}

/// What a server says first.
fn greeting(to: SocketAddr) -> Result<String> {
    let mut stream = connect(to)?;
    let mut buffer = [0; 256];
    let length = stream.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn fetch(from: SocketAddr) -> Result<String> {
    let mut stream = connect(from)?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Tells everyone who asks at which address it is seen: at both addresses of the gateway.
fn answer_http(port: u16) -> Result<()> {
    for listener in [TcpListener::bind((GATEWAY4, port))?, TcpListener::bind((GATEWAY6, port))?] {
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever hangs up early sees that itself.
                let _ = tell(stream);
            }
        });
    }
    Ok(())
}

fn tell(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    write!(stream, "HTTP/1.0 200 OK\r\n\r\n{}", stream.peer_addr()?.ip())
}

/// Answers for the one name there is.
fn answer_names(socket: UdpSocket) {
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer(&buffer[..length]) {
                // Who does not get it asks again.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
}

/// The answer to a question: its header, itself, and what is known of it.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let (header, mut rest) = question.split_at_checked(12)?;
    let mut name = String::new();
    while let [length @ 1..=63, after @ ..] = rest {
        let (label, after) = after.split_at_checked(usize::from(*length))?;
        let _infallible = write!(name, "{}{}", if name.is_empty() { "" } else { "." }, String::from_utf8_lossy(label));
        rest = after;
    }
    let kind = rest.get(1..3)?;
    let end = question.len() - rest.len() + 5;
    let octets = match (name.eq_ignore_ascii_case(GATE), kind) {
        (true, [0, 1]) => Some(vec![10, 199, 0, 1]),
        (true, [0, 28]) => Some(vec![0xfd, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        _ => None,
    };
    let missing = if name.eq_ignore_ascii_case(GATE) { 0 } else { 3 };
    let mut message = header.get(..2)?.to_vec();
    message.extend([0x81, 0x80 | missing, 0, 1, 0, u8::from(octets.is_some()), 0, 0, 0, 0]);
    message.extend_from_slice(question.get(12..end)?);
    if let Some(octets) = octets {
        message.extend([0xc0, 12, kind[0], kind[1], 0, 1, 0, 0, 0, 60, 0, u8::try_from(octets.len()).ok()?]);
        message.extend(octets);
    }
    Some(message)
}
