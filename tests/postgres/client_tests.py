"""Name the tests of the client that run again with a state in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def named(tests: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return module and name of each test."""
    return frozenset((module, name) for module, names in tests.items() for name in names.split())


MODULES: Final = (
    "test_accumulator",
    "test_alarms",
    "test_arguments",
    "test_beside",
    "test_client",
    "test_client_gets",
    "test_client_puts",
    "test_client_processing",
    "test_continuing",
    "test_delays",
    "test_families",
    "test_headers",
    "test_leaving",
    "test_letters_topic",
    "test_look_back",
    "test_meetings",
    "test_publisher",
    "test_recorder",
    "test_redriving",
    "test_reopening",
    "test_retrying",
    "test_seeking",
    "test_services",
    "test_services_discarded",
    "test_services_limits",
    "test_services_shared",
    "test_several_topics",
    "test_side_by_side",
    "test_tables",
    "test_ttl",
    "test_group_operations",
    "test_topic_deletion",
)
"""Modules of `tests/client` with tests of an open client."""

DAY: Final = named(
    {
        "test_accumulator": """
            test_threads_share_rows_and_each_keeps_its_order
            test_concurrent_puts_of_tasks_share_a_row_and_have_separate_tickets
        """,
        "test_beside": """
            test_messages_of_an_iteration_are_given_back_when_the_client_is_closed
            test_an_attempt_that_begins_while_the_client_is_closed_does_not_count
        """,
        "test_client": """
            test_a_closed_client_raises_an_error
            test_the_state_is_exported_as_the_tree_of_the_paper
        """,
        "test_client_gets": """
            test_a_message_that_arrives_as_a_call_ends_is_returned_by_that_call
            test_subscribing_again_keeps_the_position
            test_unsubscribed_means_silent_and_subscribing_anew_starts_at_the_end
            test_an_intent_that_was_not_confirmed_is_asked_for_again_by_the_next_start
            test_an_unconfirmed_unsubscribe_survives_a_kill
            test_a_message_that_was_got_never_comes_again_after_a_kill
        """,
        "test_client_processing": """
            test_an_attempt_that_kills_the_process_counts
            test_a_handler_that_raises_before_it_uses_its_transaction_has_failed
        """,
        "test_client_puts": """
            test_a_put_returns_the_counter_that_subscribers_see
            test_puts_that_do_not_wait_arrive_in_order
            test_threads_may_put_at_once_each_in_its_own_order
            test_a_put_that_timed_out_is_in_doubt_kept_and_finished_by_the_next_put_in_order
            test_flush_finishes_unfinished_puts_after_a_kill
            test_a_put_whose_answer_was_lost_in_a_kill_arrives_once
            test_discard_drops_unfinished_puts_and_the_next_put_succeeds
        """,
        "test_continuing": """
            test_a_subscriber_that_begins_before_the_end_gets_all_messages_again_once
            test_a_start_is_asked_for_by_the_next_process_too
        """,
        "test_delays": """
            test_the_outbox_keeps_the_due_time_through_a_restart
        """,
        "test_group_operations": """
            test_a_release_hands_the_claims_of_a_silent_member_to_others_with_the_mark
        """,
        "test_headers": """
            test_a_put_in_doubt_keeps_key_and_headers_over_a_restart
            test_a_dead_letter_keeps_key_and_headers
        """,
        "test_publisher": """
            test_messages_are_sent_in_batches_of_the_given_number_of_records
            test_threads_share_a_publisher
            test_an_unanswered_publisher_waits_at_its_window_and_is_in_doubt_at_its_end
        """,
        "test_recorder": """
            test_a_seek_is_recorded_with_its_start_and_its_messages_with_the_replay
        """,
        "test_redriving": """
            test_a_redriven_letter_goes_to_the_handler_with_no_attempts_and_is_no_letter_any_more
            test_all_takes_those_of_a_topic_and_since_a_time_and_leaves_losses
            test_letters_are_put_to_another_topic_with_key_and_headers
        """,
        "test_several_topics": """
            test_an_async_loop_takes_several_topics
        """,
        "test_side_by_side": """
            test_a_close_takes_back_the_attempts_that_it_ends
        """,
        "test_tables": """
            test_a_table_has_the_last_message_of_each_key_and_follows
        """,
        "test_topic_deletion": """
            test_a_subscriber_of_a_pattern_is_told_and_gets_the_topic_that_begins_anew
        """,
        "test_ttl": """
            test_an_expired_message_stays_passed_over_after_a_restart
            test_a_message_that_waits_for_its_next_attempt_is_passed_over
        """,
    }
)
"""Tests that run each time; the others of these modules run by night."""

ELSEWHERE: Final = named(
    {
        "test_client": """
            test_a_client_with_a_full_disk_sends_no_request
            test_power_safe_fsyncs_every_commit
            test_the_example_of_the_client_runs
        """,
        "test_client_gets": """
            test_an_iteration_that_ends_inside_a_transaction_does_not_end_it
            test_messages_not_yet_returned_by_an_iteration_go_to_any_caller
            test_the_thread_that_drives_the_sockets_learns_when_to_fsync
            test_threads_that_iterate_get_and_process_side_by_side_take_every_message_once
            test_unsubscribing_again_unsubscribes_where_another_host_subscribed_since
        """,
        "test_client_processing": """
            test_a_handler_that_raises_undoes_effect_puts_and_position
            test_a_handlers_puts_are_fsynced_before_they_are_sent
            test_a_message_goes_to_the_dead_letters_after_the_last_attempt
            test_an_attempt_counted_ahead_does_not_count_for_another_message
            test_an_attempt_that_the_disk_has_no_room_for_does_not_count
            test_process_takes_at_most_a_batch_and_says_how_many
        """,
        "test_client_puts": """
            test_a_statement_that_ends_the_transaction_is_refused
            test_a_transaction_happens_completely_or_not_at_all
        """,
        "test_continuing": """
            test_messages_left_in_an_iteration_are_not_lost_after_another_directory_took_over
            test_only_later_intents_begin_at_the_end
            test_the_later_of_two_directories_continues_and_the_earlier_may_take_over_again
        """,
        "test_meetings": """
            test_a_request_that_a_killed_command_left_is_not_carried_out_later
        """,
        "test_publisher": """
            test_a_full_disk_keeps_the_open_batch_until_there_is_room
            test_an_open_batch_kept_by_a_full_disk_is_sent_once_there_is_room
        """,
        "test_redriving": """
            test_a_bad_request_is_answered_with_an_error
            test_old_letters_are_purged_and_a_loss_that_was_not_raised_stays
            test_the_command_redrives_beside_the_running_client
        """,
        "test_retrying": """
            test_a_message_for_which_there_is_no_room_keeps_its_place
            test_a_rejected_message_is_a_dead_letter_at_once_with_its_reason
            test_an_interrupted_attempt_at_a_waiting_message_does_not_count
            test_an_unsubscribe_and_a_fresh_subscription_give_waiting_messages_up
            test_another_value_of_hold_is_refused_before_any_message_is_taken
            test_at_the_limit_the_topic_waits_and_loses_nothing
            test_waiting_messages_and_those_of_the_service_take_turns
            test_with_hold_all_waiting_messages_of_an_earlier_call_come_first
            test_with_hold_key_the_messages_of_the_key_wait_in_order_and_no_others
            test_with_hold_none_nothing_waits_behind_and_the_message_comes_once
        """,
        "test_several_topics": """
            test_silence_is_no_error_of_the_loop_before_the_clients_time_out
        """,
        "test_side_by_side": """
            test_an_exception_is_raised_when_all_handlers_have_ended
            test_awaiting_handlers_run_side_by_side
            test_handlers_wait_side_by_side_before_their_first_statement
            test_later_and_reject_concern_their_message_alone
            test_messages_of_one_key_are_in_one_handler_at_a_time_and_in_order
            test_what_a_killed_process_had_in_hand_comes_again_with_its_attempts
        """,
    }
)
"""Tests of files: with the SQL of SQLite, two directories of one client, a full disk, or requests beside the file."""
