"""Add to `Client` the calls that subscribe to a topic, look back into it, and change its settings."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Iterator
from typing import Unpack

from pubsub.client.core.message import Message
from pubsub.client.flows.group_waits import GroupOptions, make_wish
from pubsub.client.group_calls import check_only_group
from pubsub.client.look_back import TopicTimes
from pubsub.client.starts import StartAt, check_begin
from pubsub.client.topic_operations import TopicOperations
from pubsub.client.topic_settings import SettingTexts, TopicSettings


class SubscriberCalls(TopicOperations, ABC):
    """The calls of `Client` about one topic."""

    def subscribe(
        self,
        topic: str,
        *,
        start: StartAt | None = None,
        fresh: bool = False,
        timeout: float | None = None,
        group: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> None:
        """Receive the messages of a topic from a start on, or continue this client ID's subscription.

        If the client is subscribed already, it asks the service again: a subscription known there keeps its position.
        The service may know a subscription of this client ID from another state directory, lost or in use elsewhere.
        The client then continues that one: it receives all messages that were not acknowledged. Messages that the other
        directory received already are marked `Message.doubtful`. An unsubscribe is final: messages put between it and
        this call are not received. If another process ended the subscription, such as an operator's command, the next
        call that takes messages raises `DataLoss` once.

        Args:
            topic: as for `put`; or a pattern, where `*` stands for one token between dots, a last `>` for one or more.
                It also stands for topics that begin later. Every proxy must confirm it. It has no start in one topic.
            start: where a new subscription begins: `earliest`, `latest` (the default), `last:N` (N up to 10,000), a
                datetime with a time zone, or a message's position. It does not move a subscription that continues:
                that is `seek`. So a program may name a start at each start of its process.
            fresh: drop the subscription and its backlog, and begin at `start`.
            timeout: in seconds; None: the client's. A first subscribe from a directory waits while the topic is split,
                or no majority of the proxies is up and past its start, unless `fresh` is set.
            group: make this consumer group, or join it: each message has its effect at one member.
            options: values of a group that is made; a member that joins may name none.
                mode="shared": any member gets a message; "keyed": a key is at one member at a time, in `parts` parts.
                on_lost="wait": the claimed messages of a killed member wait for its directory; "redeliver": they go to
                another one after `lost_seconds`, doubtful. attempts: until a message is a dead letter of the group.

        Raises:
            GroupDiffers: the group exists with other values.
            InvalidName: the topic is not allowed.
            Unavailable: the service did not confirm in time; every call on the topic, and every start, asks again.
            NotAllowed, KeyRefused: as `put`; the subscription stays wanted, and later calls ask again as with
                Unavailable.
            StorageError: the disk refused the write; nothing was sent.
            CallerError: the start is not allowed, such as a bare number or a time in the future; nothing was sent.
            StartGone: no server holds the message at the start. The next call names another start.
        """
        begins = None if start is None else check_begin(start, time.time())
        check_only_group(group, options)
        if group is not None:
            wish = make_wish(begins, options)
            return self._run(self._calls.group_waits.subscribe(topic, group, wish, timeout, fresh=fresh))
        return self._run(self._calls.subscribing.intend(topic, True, timeout, fresh=fresh, start=begins))

    def seek(self, topic: str, start: StartAt, *, timeout: float | None = None) -> int:
        """Move this client's subscription: receive the topic's messages again from a start, or pass over some.

        Everything received and not taken is dropped. `get` and `process` then wait for the service. Each message from
        the start on comes once, with `Message.replay` set to the result. Dead letters stay, and attempts begin at 1. A
        handler that runs meanwhile is rolled back. An open iteration of `messages` continues after the start.

        Args:
            topic: a subscribed topic.
            start: as for `subscribe`.
            timeout: in seconds; None: the client's.

        Returns:
            The number of this replay: how often this subscription was sought. A repeated call with the same start
            after `Unavailable` has the same number.

        Raises:
            NotSubscribed: the client is not subscribed.
            CallerError: the start is not allowed, or lies in the future; nothing was changed.
            StartGone: no server holds the message at the start; nothing was changed. If it was let go just then, each
                call raises this until another seek.
            Unavailable: no answer came in time. The client continues this seek, also after a restart.
            PubsubError: otherwise as `subscribe`.
        """
        begins = check_begin(start, time.time())
        self._look_back.check_held(topic, begins)
        return self._run(self._calls.subscribing.seek(topic, begins, timeout))

    def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """End the subscription of a topic and drop its backlog.

        Args:
            topic: a topic to which the client subscribed.
            timeout: in seconds; None: the client's.

        Raises:
            NotSubscribed: the client never subscribed to it from this state directory; nothing is sent.
            PubsubError: otherwise as `subscribe`.
        """
        self._run(self._calls.subscribing.intend(topic, False, timeout))

    # Looking back

    def read(
        self,
        topic: str,
        *,
        start: StartAt = "earliest",
        stop: StartAt | None = None,
        timeout: float | None = None,
        skip_lost: bool = False,
    ) -> Iterator[Message]:
        """Yield stored messages of a topic, in order, without a subscription. Nothing is acknowledged or kept here.

        Only a part of the range is in memory at a time. The topic has the messages that some subscriber needs, or that
        its setting `keep` keeps. Without a stop the iteration ends at the last message that is there by then.

        Args:
            topic: an existing topic.
            start: where the range begins, as for `subscribe`.
            stop: None: at the end of the topic; a datetime with a time zone: before messages of that time; or the
                position of the last message.
            timeout: for each answer, in seconds; None: the client's.
            skip_lost: pass over lost messages. False: raise `RangeLoss`, a `DataLoss`.

        Raises:
            InvalidName, CallerError: an argument is not allowed; nothing was sent.
            NotKnown: no server holds the topic.
            StartGone: no server holds the message at the start, or those that follow were let go meanwhile.
            HistoryChanged: two servers merged the topic meanwhile, and messages before the present place may be new.
                Read again from the start.
            RangeLoss: messages of the range are lost.
            Refused: a server has a release without this.
            Unavailable, NotAllowed, KeyRefused: as `put`; this needs the right to get.
        """
        return self._look_back.range(topic, start, stop, timeout, skip_lost=skip_lost).messages()

    def times(self, topic: str) -> TopicTimes:
        """Return the times of the oldest and the newest stored message of a topic, and their number.

        Raises:
            InvalidName, NotKnown, Refused: as `read`.
            Unavailable, NotAllowed, KeyRefused: as `put`; this needs the right to get.
        """
        return self._look_back.times(topic)

    # Settings of topics

    def settings_of(self, topic: str) -> TopicSettings:
        """Return the settings of a topic; the defaults if it does not exist.

        Raises:
            InvalidName, CallerError: the topic is not allowed, or belongs to a service.
            Unavailable: no answer came within the client's time limit.
            NotAllowed, KeyRefused: as `put`; this needs the right to get or to operate.
            Refused: a proxy or server has a release without settings.
        """
        return self._topic_settings.settings_of(topic)

    def configure(self, topic: str, *, base: str | None = None, **values: Unpack[SettingTexts]) -> TopicSettings:
        """Change the settings of a topic, and return those in force. A topic that does not exist is created.

        Args:
            topic: as for `put`.
            keep: how much stays although every subscriber has acknowledged it: `none`, `ever`, or an age (`7d`), bytes
                (`10GiB`) and a number (`1000 records`), separated by commas. Any of several amounts lets a message go.
                `latest`: the last message of each key stays, and a message without a key.
            drop: beyond what a message goes although a subscriber has not acknowledged it: `never`, an age or bytes.
                The subscriber gets `DataLoss`. It takes nothing that `keep` still keeps.
            expire: the age beyond which a message is not delivered any more: `never`, or an age. It is no loss.
            rate: the most messages that clients put in a second: `none`, or `1000/s`. A put beyond it waits.
            bytes: the most bytes that clients put in a second: `none`, or `5MiB/s`.
            base: change these settings only if they have this version; None: the present ones.
            tombstones: with `keep=latest`, how long an empty message, which deletes its key, stays; at least `1h`.

        Raises:
            InvalidName, CallerError: the topic or a value is not allowed; nothing was sent.
            NotNow: the settings have another version than `base`.
            NotAllowed, KeyRefused: as `put`; this needs the right to operate.
            Unavailable: no answer came in time; the change may still be in force. Repeat it.
            Refused: a proxy or server has a release without settings.
        """
        return self._topic_settings.configure(topic, values, base)
