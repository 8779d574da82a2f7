//! Contexts: the manager that they get, when it may be changed, and the order of calls to it.
#![cfg(feature = "emm")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, Error, ErrorKind, Machine, Result, SimBackend, SimConfig};
use pagewise_managers::emm::{
    Contexts, EmmOptions, ExternalMemoryManager, OrderChecker, Plugin, ResourceManager,
};

const FIRST: Device = Device::FIRST;

fn injected() -> Result<(Arc<FaultInjector<Arc<SimBackend>>>, Machine)> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    Ok((backend, machine))
}

fn plugin_that_counts(name: &str, made: &Arc<AtomicU64>) -> Plugin {
    let made = Arc::clone(made);
    Plugin::new(name, 1, move |machine, device| {
        made.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(ResourceManager::direct(machine, device, EmmOptions::default())?))
    })
}

#[test]
fn a_manager_of_another_version_is_refused_without_being_made() -> Result<()> {
    let (backend, machine) = injected()?;
    let contexts = Contexts::new(&machine);
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let second = Plugin::new("second", 2, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Err(Error::new("make", ErrorKind::Unsupported))
    });
    let error = contexts.set_memory_manager(second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("version 2 - version 1 required"), "{error}");
    assert_eq!((made.load(Ordering::Relaxed), backend.take_calls().len()), (0, 0));
    assert_eq!(&*contexts.memory_manager(), "default");
    Ok(())
}

/// There it takes effect for contexts that are made later, silently.
#[test]
fn a_manager_is_set_only_while_there_is_no_context() -> Result<()> {
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(2))?));
    let contexts = Contexts::new(&machine);
    let made = Arc::new(AtomicU64::new(0));
    contexts.set_memory_manager(plugin_that_counts("first", &made))?;
    let second = Device::new(1)?;
    let one = contexts.enter(FIRST)?;
    let two = contexts.enter(second)?;
    assert!(!Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&one, &contexts.enter(FIRST)?));
    assert_eq!(made.load(Ordering::Relaxed), 2, "one for each context, however often entered");
    let late = contexts.set_memory_manager(Plugin::default()).unwrap_err();
    assert!(late.to_string().contains("2 contexts exist, with memory of `first`"), "{late}");
    let (kept, _gone) = (one.memalloc(10)?, two.memalloc(20)?.free());
    let leaks = contexts.close()?;
    assert_eq!(leaks.iter().map(|leak| leak.span).collect::<Vec<_>>(), [kept.span()]);
    contexts.set_memory_manager(Plugin::default())?;
    assert_eq!(&*contexts.memory_manager(), "default");
    assert!(contexts.enter(Device::new(2)?).is_err());
    Ok(())
}

#[test]
fn no_manager_is_set_while_a_context_is_being_made() -> Result<()> {
    let contexts = Arc::new(Contexts::new(Machine::from(pagewise::sim()?)));
    let (here, answers) = (Arc::clone(&contexts), Arc::new(Mutex::new(Vec::new())));
    let heard = Arc::clone(&answers);
    let asks = Plugin::new("asks", 1, move |machine, device| {
        let answer = here.set_memory_manager(Plugin::default());
        heard.lock().expect("no panics").push(answer.map_err(|error| error.to_string()));
        Ok(Arc::new(ResourceManager::direct(machine, device, EmmOptions::default())?))
    });
    contexts.set_memory_manager(asks)?;
    contexts.enter(FIRST)?;
    let answers = answers.lock().expect("no panics");
    let refused = |answer: &std::result::Result<(), String>| {
        answer.as_ref().is_err_and(|error| error.contains("1 contexts exist"))
    };
    assert!(answers.len() == 1 && answers.iter().all(refused), "{answers:?}");
    // The plug-in holds the contexts that hold it.
    contexts.close()?;
    contexts.set_memory_manager(Plugin::default())
}

#[test]
fn a_plug_in_that_fails_leaves_no_context() -> Result<()> {
    let (backend, machine) = injected()?;
    let contexts = Contexts::new(&machine);
    let fails = Plugin::new("fails", 1, |_, _| Err(Error::new("make", ErrorKind::Unsupported)));
    contexts.set_memory_manager(fails)?;
    assert!(contexts.enter(FIRST).is_err());
    contexts.set_memory_manager(Plugin::default())?;
    backend.arm(Fault::new(Code::NOT_INITIALIZED).on(Operation::MemoryInfo));
    assert_eq!(contexts.enter(FIRST).unwrap_err().code(), Some(Code::NOT_INITIALIZED));
    contexts.set_memory_manager(Plugin::default())?;
    let memory = contexts.enter(FIRST)?.memalloc(8)?;
    memory.free()?;
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::Free));
    let error = contexts.close().unwrap_err();
    assert!(error.to_string().contains("closed all the same"), "{error}");
    contexts.set_memory_manager(Plugin::default())
}

/// A context calls in the order that managers may rely on.
#[test]
fn contexts_initialise_before_anything_else() -> Result<()> {
    let (_, machine) = injected()?;
    let contexts = Contexts::new(&machine);
    let checker = Arc::new(OrderChecker::around(Arc::new(ResourceManager::direct(
        &machine,
        FIRST,
        EmmOptions::default(),
    )?)));
    let given: Arc<dyn ExternalMemoryManager> = checker.clone();
    contexts.set_memory_manager(Plugin::new("checked", 1, move |_, _| Ok(given.clone())))?;
    let memory = contexts.enter(FIRST)?.memalloc(8)?;
    contexts.enter(FIRST)?.get_memory_info()?;
    drop(memory);
    contexts.close()?;
    let calls = ["initialize", "memalloc", "initialize", "get_memory_info", "reset"];
    assert_eq!(checker.calls(), calls);
    assert!(checker.violations().is_empty());
    Ok(())
}

#[test]
fn threads_that_enter_together_get_one_manager() -> Result<()> {
    for _ in 0..20 {
        let machine = Machine::from(pagewise::sim()?);
        let contexts = Contexts::new(&machine);
        let managers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| contexts.enter(FIRST))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panics")).collect()
        });
        let managers: Vec<_> = managers.into_iter().collect::<Result<_>>()?;
        assert!(managers.iter().all(|manager| Arc::ptr_eq(manager, &managers[0])));
    }
    Ok(())
}

#[test]
fn calls_that_came_too_early_are_noted_and_passed_on() -> Result<()> {
    let (_, machine) = injected()?;
    let inner = ResourceManager::direct(&machine, FIRST, EmmOptions::default())?;
    let checker = OrderChecker::around(Arc::new(inner));
    assert!(checker.memalloc(8).is_err());
    checker.initialize()?;
    checker.memalloc(8)?;
    assert_eq!(checker.violations(), ["memalloc before initialize"], "the second is no violation");
    Ok(())
}

#[test]
fn a_plugin_has_the_name_and_version_that_it_was_given() {
    let plugin = Plugin::new("mine", 7, |_, _| unreachable!("no context is entered"));
    assert_eq!((plugin.name(), plugin.interface_version()), ("mine", 7));
}
