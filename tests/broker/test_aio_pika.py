"""aio-pika, as it comes, against the broker."""

import asyncio

import aio_pika
import pytest
from aio_pika.exceptions import ChannelNotFoundEntity, PublishError


def run(broker, program):
    """Run a coroutine with a connection."""
    async def main():
        host, port = broker.address
        connection = await aio_pika.connect(f"amqp://guest:guest@{host}:{port}/")
        async with connection:
            await asyncio.wait_for(program(connection), 30)

    asyncio.run(main())


def test_publish_and_consume(broker):
    async def program(connection):
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue("jobs", auto_delete=True)
        for number in range(100):
            await channel.default_exchange.publish(
                aio_pika.Message(b"%d" % number, headers={"number": number}, delivery_mode=2), routing_key="jobs")
        got = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    got.append((message.body, message.headers["number"]))
                if len(got) == 100:
                    break
        assert got == [(b"%d" % number, number) for number in range(100)]

    run(broker, program)


def test_topics_and_bindings(broker):
    async def program(connection):
        channel = await connection.channel(on_return_raises=True)
        news = await channel.declare_exchange("news", aio_pika.ExchangeType.TOPIC)
        chess = await channel.declare_queue(exclusive=True)
        await chess.bind(news, "*.chess")
        await news.publish(aio_pika.Message(b"draw"), "sport.chess")
        message = await chess.get()
        assert (message.body, message.exchange, message.routing_key) == (b"draw", "news", "sport.chess")
        await message.ack()
        await chess.unbind(news, "*.chess")
        with pytest.raises(PublishError):
            await news.publish(aio_pika.Message(b"draw"), "sport.chess", mandatory=True)
        assert await chess.get(fail=False) is None

    run(broker, program)


def test_a_question_and_its_answer(broker):
    async def program(connection):
        channel = await connection.channel()
        questions = await channel.declare_queue("questions")
        answers = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(
            aio_pika.Message(b"6 x 7", reply_to=answers.name, correlation_id="1"), "questions")
        question = await questions.get()
        async with question.process():
            await channel.default_exchange.publish(
                aio_pika.Message(b"42", correlation_id=question.correlation_id), question.reply_to)
        answer = await answers.get()
        assert (answer.body, answer.correlation_id) == (b"42", "1")

    run(broker, program)


def test_hundreds_of_channels(broker):
    async def program(connection):
        channels = [await connection.channel() for _number in range(300)]
        queue = await channels[0].declare_queue("jobs")
        await asyncio.gather(*(channel.default_exchange.publish(aio_pika.Message(b"x"), "jobs") for channel in channels))
        assert (await channels[1].declare_queue("jobs", passive=True)).declaration_result.message_count == 300
        await queue.purge()
        for channel in channels:
            await channel.close()

    run(broker, program)


def test_an_error_of_a_channel(broker):
    async def program(connection):
        channel = await connection.channel()
        with pytest.raises(ChannelNotFoundEntity, match="no queue 'jobs'"):
            await channel.get_queue("jobs")

    run(broker, program)


def test_transactions(broker):
    async def program(connection):
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("jobs")
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"kept"), "jobs")
        assert (await queue.get(no_ack=True)).body == b"kept"

    run(broker, program)
