"""Every error tells in one line the event, its object and the next step, and carries its facts and its exit code."""

import inspect
import pickle

import pytest

import pubsub.client.errors
import pubsub.http.errors
import pubsub.services.errors
from pubsub import errors
from pubsub.client.errors import (
    CallDiscarded,
    CallExpired,
    CallFailed,
    CallKept,
    CallOver,
    ClaimLost,
    CommitInDoubt,
    DatabaseOlder,
    GroupDiffers,
    GroupEnded,
    GroupFull,
    GroupInDoubt,
    GroupSuspended,
    HistoryChanged,
    LifeEnded,
    NoSuchCall,
    RangeLoss,
    StartGone,
)
from pubsub.errors import (
    AfterFork,
    AuthorizedRefused,
    CallerError,
    ConfigurationError,
    DataLoss,
    DecodeError,
    HandlerMisused,
    InDoubt,
    Interrupted,
    InvalidKey,
    InvalidName,
    KeyRefused,
    NoSuchClient,
    NotAllowed,
    NotKnown,
    NotNow,
    NotSubscribed,
    OperatorError,
    PeerError,
    PubsubError,
    Refused,
    ServerSilent,
    SettingRefused,
    StateCopied,
    StorageError,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreNewer,
    Superseded,
    TooLarge,
    Unavailable,
)
from pubsub.http.errors import JobFailed, RequestExpired, RequestKept, RequestOver, RequestRefused
from pubsub.services.errors import CallError, CallRefused, CallTimeout, HandlerOverran, NoWorker

EXAMPLES = [
    StartGone("t", "00000000000000aa.1"),
    CommitInDoubt("postgresql://db/shop", 5.0, "no answer"),
    DatabaseOlder("postgresql://db/shop", 17, 12),
    LifeEnded("postgresql://db/shop"),
    HistoryChanged("t", "00000000000000aa.1"),
    RangeLoss("t", "00000000000000aa.1", "00000000000000aa.2", "dropped"),
    NoWorker("billing", "it has no worker"),
    HandlerOverran("shout", 2.5),
    CallRefused("mmi.echo", "501", "not implemented"),
    AuthorizedRefused(3, "there is no role 'cleint'", "/etc/pubsub/authorized"),
    CallError("billing", "no"),
    CallTimeout("billing", 3, 7.5, ["tcp://127.0.0.1:5555"]),
    CallerError("no"),
    CallDiscarded("billing", "order-17"),
    ClaimLost("orders", "billing", "00000000000000aa.1"),
    GroupDiffers("orders", "billing", "mode differs", "mode shared"),
    GroupEnded("orders", "billing"),
    GroupEnded("orders", "billing", again=True),
    GroupFull("orders", "billing", "members_max"),
    GroupInDoubt("orders", "billing", 12, ("w2",)),
    GroupSuspended("orders", "billing"),
    CallExpired("billing", "order-17", "its deadline passed before a worker began it"),
    CallFailed("billing", "order-17", "ValueError: no"),
    CallKept("shop", "billing", "order-17", 30.0, "no worker"),
    CallOver("billing", "order-17", "it came to nothing"),
    ConfigurationError("address tcp://127.0.0.1:1 is in use"),
    DataLoss("orders", "a.1", "a.9", "the file is damaged"),
    DecodeError("no end of the header"),
    InDoubt("billing", "orders", 30.0, "", 2),
    InvalidKey("it does not begin with pk_"),
    InvalidName("topic", "a b", "no spaces"),
    JobFailed("k1", "http://h/jobs", "no paper"),
    NoSuchClient("billin", "/data", ["billing"]),
    KeyRefused("tcp://127.0.0.1:5601 does not know the key pk_… of client alice"),
    NotAllowed("put", "orders", "client alice may not put to orders", "the put is kept"),
    NoSuchCall("shop", "order-17"),
    ServerSilent("server s1 sends no heartbeats"),
    NotKnown("topic orders is not known"),
    NotNow("topic orders is contested"),
    AfterFork("client c", 12),
    Interrupted("client c"),
    HandlerMisused("a generator"),
    NotSubscribed("billing", "orders"),
    OperatorError("no"),
    PeerError("no"),
    PubsubError("no"),
    Refused("PUT", "orders", "the checksum does not match"),
    RequestExpired("k1", "http://h/orders", "connection refused"),
    RequestKept("k1", "http://h/orders", 30.0, "connection refused", "/data"),
    RequestOver("k1", "http://h/orders", "no"),
    RequestRefused("k1", "http://h/orders", "501: not implemented", 501),
    SettingRefused("client", "tries", 0, "a whole number", "--tries"),
    StateCopied("billing", "/state", "a higher counter"),
    StorageError("/data", "is not writable"),
    StoreDamaged("/data", "checksum"),
    StoreFull("/data", "no space left"),
    StoreInUse("/data", "process 12"),
    StoreNewer("/data", 9, 1),
    Superseded("billing", "orders"),
    TooLarge("batch", 20_000_000, 16_777_216, "BATCH_BYTES_MAX"),
    Unavailable("GET", "orders", 30.0, "no proxy answers"),
]


def test_every_error_of_the_tree_has_an_example_here():
    rooms = (errors, pubsub.client.errors, pubsub.http.errors, pubsub.services.errors)
    found = (c for room in rooms for _, c in inspect.getmembers(room, inspect.isclass))
    tree = {c for c in found if issubclass(c, PubsubError)}
    assert tree == {type(example) for example in EXAMPLES}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_the_text_of_an_error_is_one_line(error):
    assert str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_survives_a_process_boundary(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_ends_a_command_with_a_nonzero_exit_code(error):
    assert 0 < error.exit_code < 126


def test_errors_that_scripts_distinguish_have_different_exit_codes():
    kinds = [CallerError, Unavailable, InDoubt, NotSubscribed, StorageError, ConfigurationError]
    kinds += [NotKnown, ServerSilent, NotNow]
    assert len({kind.exit_code for kind in kinds}) == len(kinds)


def test_a_put_in_doubt_names_the_next_command():
    text = str(InDoubt("billing", "orders", 30.0, "no proxy answers", 2))
    assert "pubsub client billing flush" in text
    assert "pubsub client billing discard orders" in text


def test_a_name_of_ten_kilobytes_is_shown_in_short():
    assert len(str(InvalidName("topic", "x" * 10_000, "1-80 characters"))) < 150


def test_a_name_with_line_breaks_stays_on_one_line():
    assert "\n" not in str(InvalidName("topic", "a\r\nb", "1-80 characters"))


def test_a_limit_is_named():
    assert "BATCH_BYTES_MAX = 16,777,216" in str(TooLarge("batch", 20_000_000, 16_777_216, "BATCH_BYTES_MAX"))


@pytest.mark.parametrize(
    "error",
    [
        NotSubscribed("c", "a;b&c"),
        NotSubscribed("c", "a;b&c", never=True),
        InDoubt("c", "a;b&c", 1.0, "", 1),
    ],
    ids=range(3),
)
def test_a_suggested_command_can_be_pasted_into_a_shell(error):
    assert " 'a;b&c'" in str(error)
