//! The flags of client commands: which server, and which namespace.
//!
//! A verb acts on this machine unless it is told otherwise, and never on another cluster in silence.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use kube::{Api, Client, Config};

use crate::cluster::{from_file, from_usual_files};
use crate::terminal::note;

/// Where `orlop up` keeps everything, unless it is told otherwise.
pub(crate) const DATA_DIR: &str = "/var/lib/orlop";
/// Where a user's own kubeconfig for this machine is, below the home directory.
pub(crate) const USERS_KUBECONFIG: &str = ".kube/orlop";

/// The directory of `orlop up`.
#[derive(clap::Args)]
#[group(id = "data")]
pub(crate) struct Data {
    /// Data directory: objects, certificates, images, volumes and pods of this machine.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR, env = "ORLOP_DATA_DIR")]
    pub(crate) data_dir: PathBuf,
}

impl Data {
    /// The directory, as a path that holds wherever a child of this process runs.
    pub(crate) fn folder(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.data_dir).with_context(|| format!("--data-dir {}", self.data_dir.display()))
    }
}

/// The admin's kubeconfig in the directory of `orlop up`.
pub(crate) fn kubeconfig(data: &Path) -> PathBuf {
    data.join("kubeconfig")
}

/// The server and the namespace that a verb is for.
///
/// Guarantee: a flag that was typed goes before the environment variable of another flag.
pub(crate) struct Target(Flags);

#[derive(clap::Args)]
#[group(id = "target")]
struct Flags {
    /// Data directory of the `orlop up` to connect to; takes precedence over $KUBECONFIG.
    #[arg(long, value_name = "DIR", env = "ORLOP_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Kubeconfig to use. The default is the first of --data-dir, $KUBECONFIG, ~/.kube/orlop, /var/lib/orlop/kubeconfig,
    /// ~/.kube/config and the pod's service account.
    #[arg(long, value_name = "FILE", env = "ORLOP_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, for a cluster with KubeVirt's API. Without --kubeconfig and --data-dir it is looked up where
    /// kubectl does: $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "NAME", env = "ORLOP_CONTEXT")]
    context: Option<String>,
    /// Namespace. The default is the one of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME", env = "ORLOP_NAMESPACE")]
    namespace: Option<String>,
}

impl Args for Target {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}

impl FromArgMatches for Target {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is = |flag: &str, source: ValueSource| matches.value_source(flag) == Some(source);
        let mut flags = Flags::from_arg_matches(matches)?;
        if is("data_dir", ValueSource::CommandLine) {
            flags.kubeconfig = flags.kubeconfig.filter(|_| !is("kubeconfig", ValueSource::EnvVariable));
            flags.context = flags.context.filter(|_| !is("context", ValueSource::EnvVariable));
        } else if is("context", ValueSource::CommandLine) {
            flags.data_dir = flags.data_dir.filter(|_| !is("data_dir", ValueSource::EnvVariable));
        }
        Ok(Self(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Where the name of a server comes from.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// This machine's.
    Own(PathBuf),
    /// A file that was named.
    Named(PathBuf),
    /// Wherever kubectl would look.
    Usual,
    /// The context of a file of kubectl's.
    Context(String),
}

/// What there is to choose from.
struct KubeconfigPaths {
    kubeconfig: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    context: Option<String>,
    /// `$KUBECONFIG` is set.
    environment: bool,
    home: Option<PathBuf>,
    /// The directory of `orlop up`, unless told otherwise.
    machine: PathBuf,
}

impl Target {
    /// The directory of `orlop up` on this machine.
    pub(crate) fn data(&self) -> PathBuf {
        self.0.data_dir.clone().unwrap_or_else(|| DATA_DIR.into())
    }

    /// Whether a context was named: what there is of this machine alone is not of it.
    pub(crate) fn names_context(&self) -> bool {
        self.0.context.is_some()
    }

    /// The same flags once more, for another call of this program.
    pub(crate) fn words(&self) -> Vec<String> {
        let Flags { data_dir, kubeconfig, context, namespace } = &self.0;
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let flags = [
            ("--data-dir", data_dir.as_ref().map(path)),
            ("--kubeconfig", kubeconfig.as_ref().map(path)),
            ("--context", context.clone()),
            ("--namespace", namespace.clone()),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        given.flatten().collect()
    }

    /// A client of the server, with the namespace as its default. Says which server it is, if it is not this machine's.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        self.found(true).await
    }

    /// The same once more, for a server that was started again: it may be at another address by now. What was said once is not
    /// repeated.
    pub(crate) async fn client_again(&self) -> anyhow::Result<Client> {
        self.found(false).await
    }

    async fn found(&self, tells: bool) -> anyhow::Result<Client> {
        let Flags { data_dir, kubeconfig, context, namespace } = &self.0;
        let places = KubeconfigPaths {
            kubeconfig: kubeconfig.clone(),
            data_dir: data_dir.clone(),
            context: context.clone(),
            environment: std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()),
            home: std::env::var_os("HOME").map(PathBuf::from),
            machine: DATA_DIR.into(),
        };
        let context = context.as_deref();
        let mut config = match choose(&places)? {
            Found::Own(path) => from_file(&path, context).await?,
            Found::Named(path) => told(from_file(&path, context).await?, &places, tells).await,
            Found::Context(context) => told(from_usual_files(&context).await?, &places, tells).await,
            Found::Usual => {
                told(Config::infer().await.context("find an API server; is `orlop up` running?")?, &places, tells).await
            }
        };
        if let Some(namespace) = namespace {
            config.default_namespace.clone_from(namespace);
        }
        Client::try_from(config).context("make a client")
    }
}

/// The first of these that is there. One that is there and cannot be read is an error: what comes after it is another server.
fn choose(places: &KubeconfigPaths) -> anyhow::Result<Found> {
    let KubeconfigPaths { kubeconfig: named, data_dir, context, environment, home, machine } = places;
    if let Some(path) = named {
        return Ok(Found::Named(path.clone()));
    }
    if let Some(data) = data_dir {
        let path = kubeconfig(data);
        return match readable(&path)? {
            true => Ok(Found::Own(path)),
            false => {
                bail!("{} does not exist; create it with `orlop up --data-dir {}`", path.display(), data.display())
            }
        };
    }
    // The kubeconfigs of this machine have one context each, and whoever names another means another server.
    if let Some(context) = context {
        return Ok(Found::Context(context.clone()));
    }
    if *environment {
        return Ok(Found::Usual);
    }
    let own = home.iter().map(|home| home.join(USERS_KUBECONFIG));
    for path in own.chain([kubeconfig(machine)]) {
        if readable(&path)? {
            return Ok(Found::Own(path));
        }
    }
    Ok(Found::Usual)
}

/// Whether a file is there.
///
/// # Errors
/// When it is, and is not for us.
fn readable(path: &Path) -> anyhow::Result<bool> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| {
            let path = path.display();
            format!(
                "read {path}; use sudo, create a kubeconfig of your own (`sudo orlop kubeconfig --for $USER`) or set \
                 --kubeconfig"
            )
        }),
    }
}

/// Says which server it is, if it is not this machine's.
async fn told(config: Config, places: &KubeconfigPaths, tells: bool) -> Config {
    if tells && !is_of_this_machine(&config, places).await {
        note(&format!("using the server {}", config.cluster_url));
    }
    config
}

/// Whether a server is the `orlop up` of this machine: at its address, and known by its authority. Others use that address, too.
async fn is_of_this_machine(config: &Config, places: &KubeconfigPaths) -> bool {
    let own = places.home.iter().map(|home| home.join(USERS_KUBECONFIG));
    for path in own.chain([kubeconfig(&places.machine)]) {
        let is_it = |own: Config| own.cluster_url == config.cluster_url && own.root_cert == config.root_cert;
        if from_file(&path, None).await.is_ok_and(is_it) {
            return true;
        }
    }
    false
}

/// A VM and its instance, as they are now.
pub(crate) async fn machine(
    client: &Client,
    name: &str,
) -> anyhow::Result<(Option<VirtualMachine>, Option<VirtualMachineInstance>)> {
    let vms: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    let vm = vms.get_opt(name).await.context("ask the API server")?;
    let vmi = vmis.get_opt(name).await.context("ask the API server")?;
    anyhow::ensure!(
        vm.is_some() || vmi.is_some(),
        "VM {name:?} was not found in namespace {}",
        client.default_namespace()
    );
    Ok((vm, vmi))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with nothing but directories.
    fn places(folder: &Path) -> KubeconfigPaths {
        let (home, machine) = (folder.join("home"), folder.join("machine"));
        std::fs::create_dir_all(home.join(".kube")).unwrap();
        std::fs::create_dir_all(&machine).unwrap();
        KubeconfigPaths {
            kubeconfig: None,
            data_dir: None,
            context: None,
            environment: false,
            home: Some(home),
            machine,
        }
    }

    #[test]
    fn this_machine_goes_before_the_usual_places_and_what_is_said_before_both() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = places(folder.path());
        assert_eq!(choose(&places).unwrap(), Found::Usual);

        let machines = kubeconfig(&places.machine);
        std::fs::write(&machines, "").unwrap();
        assert_eq!(choose(&places).unwrap(), Found::Own(machines));
        let users = places.home.clone().unwrap().join(USERS_KUBECONFIG);
        std::fs::write(&users, "").unwrap();
        assert_eq!(choose(&places).unwrap(), Found::Own(users));

        places.environment = true;
        assert_eq!(choose(&places).unwrap(), Found::Usual);
        let other = folder.path().join("other");
        std::fs::create_dir(&other).unwrap();
        places.data_dir = Some(other.clone());
        assert!(choose(&places).unwrap_err().to_string().contains("create it with"));
        std::fs::write(kubeconfig(&other), "").unwrap();
        assert_eq!(choose(&places).unwrap(), Found::Own(kubeconfig(&other)));
        places.kubeconfig = Some("mine".into());
        assert_eq!(choose(&places).unwrap(), Found::Named("mine".into()));
    }

    #[test]
    fn a_flag_goes_before_the_variable_of_another_flag() {
        // $PATH stands for the variables of these flags: it is set wherever tests run.
        let parse = |variables: &[&'static str], typed: &[&str]| {
            let mut command = Target::augment_args(Command::new("orlop"));
            for flag in ["data_dir", "kubeconfig", "context", "namespace"] {
                let variable = if variables.contains(&flag) { "PATH" } else { "ORLOP_IS_NOT_SET" };
                command = command.mut_arg(flag, |argument| argument.env(variable));
            }
            let words = ["orlop"].iter().chain(typed);
            let target = Target::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap();
            target.words().chunks(2).map(|pair| pair[0].clone()).collect::<Vec<_>>()
        };
        let every = ["data_dir", "kubeconfig", "context", "namespace"];
        assert_eq!(parse(&every, &[]), ["--data-dir", "--kubeconfig", "--context", "--namespace"]);
        assert_eq!(parse(&every, &["--data-dir", "x"]), ["--data-dir", "--namespace"]);
        assert_eq!(parse(&every, &["--context", "x"]), ["--kubeconfig", "--context", "--namespace"]);
        // The context of a file is still the one of the variable.
        assert_eq!(parse(&["context"], &["--kubeconfig", "x"]), ["--kubeconfig", "--context"]);
        // What was typed stays together.
        let typed = ["--data-dir", "x", "--kubeconfig", "x", "--context", "x"];
        assert_eq!(parse(&[], &typed), ["--data-dir", "--kubeconfig", "--context"]);
    }

    #[test]
    fn a_context_is_looked_up_where_kubectl_does_unless_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = places(folder.path());
        // What this machine has is no answer to the name of another cluster.
        std::fs::write(kubeconfig(&places.machine), "").unwrap();
        places.context = Some("lab".to_owned());
        assert_eq!(choose(&places).unwrap(), Found::Context("lab".to_owned()));
        places.environment = true;
        assert_eq!(choose(&places).unwrap(), Found::Context("lab".to_owned()));
        places.kubeconfig = Some("mine".into());
        assert_eq!(choose(&places).unwrap(), Found::Named("mine".into()));
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_an_error_that_lists_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [
                { "name": "here", "cluster": { "server": "http://127.0.0.1:1" } },
                { "name": "lab", "cluster": { "server": "http://127.0.0.1:2" } },
            ],
            "users": [{ "name": "me", "user": {} }],
            "contexts": [
                { "name": "here", "context": { "cluster": "here", "user": "me" } },
                { "name": "lab", "context": { "cluster": "lab", "user": "me", "namespace": "vms" } },
            ],
        });
        std::fs::write(&file, text.to_string()).unwrap();
        let config = from_file(&file, Some("lab")).await.unwrap();
        assert_eq!((config.cluster_url.port_u16(), config.default_namespace.as_str()), (Some(2), "vms"));
        assert_eq!(from_file(&file, None).await.unwrap().cluster_url.port_u16(), Some(1));
        let refused = from_file(&file, Some("prod")).await.unwrap_err().to_string();
        assert_eq!(refused, "the kubeconfig has no context \"prod\"; its contexts: here, lab");
    }

    #[test]
    fn what_cannot_be_read_leads_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut places = places(folder.path());
        // A file where a directory should be: as closed to everybody, root included, as another's directory to a user.
        places.machine = folder.path().join("file");
        std::fs::write(&places.machine, "").unwrap();
        let refused = format!("{:#}", choose(&places).unwrap_err());
        assert!(refused.contains("sudo orlop kubeconfig"), "{refused}");
    }
}
