// A peer for topic matching: what a C++ programmer writes who wants it fast and needs no removal and no `#` but at the end.
//
// Words are interned, children are found in one open-addressing table keyed by (node, word), and a second table remembers
// the result for an address. Everything lies in a few vectors. Results of the cache are spans of one vector.

#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

class FlatTrie {
    static constexpr int words_max = 64;

    struct Word { uint64_t hash = 0; uint32_t id = 0, offset = 0, size = 0; };
    struct Edge { uint64_t key = 0; uint32_t child = 0; };
    struct Node { uint32_t star = 0; std::vector<int> here, tail; };
    struct Result { uint64_t hash = 0; uint32_t offset = 0, size = 0, first = 0, count = 0; };

    std::vector<Word> words{1 << 10};
    std::vector<Edge> edges{1 << 10};
    std::vector<Node> nodes{1};
    std::vector<Result> results{1 << 10};
    std::string word_text, address_text;
    std::vector<int> result_items;
    uint32_t word_count = 0, edge_count = 0, result_count = 0;

    static uint64_t hash_of(const char* text, size_t size) {
        uint64_t hash = 0x9E3779B97F4A7C15ull ^ size, chunk;
        for (; size >= 8; text += 8, size -= 8) {
            std::memcpy(&chunk, text, 8);
            hash = (hash ^ chunk) * 0xFF51AFD7ED558CCDull;
            hash ^= hash >> 32;
        }
        chunk = 0;
        std::memcpy(&chunk, text, size);
        hash = (hash ^ chunk) * 0xFF51AFD7ED558CCDull;
        hash = (hash ^ hash >> 29) * 0xC4CEB9FE1A85EC53ull;
        return hash ^ hash >> 32;
    }

    static uint64_t key_of(uint32_t node, uint32_t word) { return (uint64_t(node) << 32 | word) + 1; }

    static uint64_t key_hash(uint64_t key) {
        key *= 0x9E3779B97F4A7C15ull;
        return key ^ key >> 32;
    }

    static int split(std::string_view text, std::string_view* out) {
        int count = 0;
        size_t start = 0;
        for (size_t i = 0; i <= text.size(); i++)
            if (i == text.size() || text[i] == '.') {
                if (count == words_max) break;
                out[count++] = text.substr(start, i - start);
                start = i + 1;
            }
        return count;
    }

    // Doubles a table that is half full; `home` is an entry's hash, `used` whether there is one.
    template <class Entry, class Home, class Used>
    static void grow(std::vector<Entry>& table, uint32_t count, Home home, Used used) {
        if (count * 2 < table.size()) return;
        std::vector<Entry> larger(table.size() * 2);
        for (const Entry& entry : table)
            if (used(entry)) {
                size_t at = home(entry) & (larger.size() - 1);
                while (used(larger[at])) at = (at + 1) & (larger.size() - 1);
                larger[at] = entry;
            }
        table.swap(larger);
    }

    uint32_t word_find(std::string_view text) const {
        const uint64_t hash = hash_of(text.data(), text.size());
        for (size_t at = hash & (words.size() - 1);; at = (at + 1) & (words.size() - 1)) {
            const Word& word = words[at];
            if (!word.id) return 0;
            if (word.hash == hash && word.size == text.size() && !std::memcmp(word_text.data() + word.offset, text.data(), text.size()))
                return word.id;
        }
    }

    uint32_t word_make(std::string_view text) {
        if (uint32_t id = word_find(text)) return id;
        grow(words, word_count, [](const Word& w) { return w.hash; }, [](const Word& w) { return w.id != 0; });
        const uint64_t hash = hash_of(text.data(), text.size());
        size_t at = hash & (words.size() - 1);
        while (words[at].id) at = (at + 1) & (words.size() - 1);
        words[at] = {hash, ++word_count, uint32_t(word_text.size()), uint32_t(text.size())};
        word_text.append(text);
        return word_count;
    }

    uint32_t edge_find(uint32_t node, uint32_t word) const {
        const uint64_t key = key_of(node, word);
        for (size_t at = key_hash(key) & (edges.size() - 1);; at = (at + 1) & (edges.size() - 1)) {
            if (edges[at].key == key) return edges[at].child;
            if (!edges[at].key) return 0;
        }
    }

    uint32_t edge_make(uint32_t node, uint32_t word) {
        if (uint32_t child = edge_find(node, word)) return child;
        grow(edges, edge_count, [](const Edge& e) { return key_hash(e.key); }, [](const Edge& e) { return e.key != 0; });
        const uint64_t key = key_of(node, word);
        size_t at = key_hash(key) & (edges.size() - 1);
        while (edges[at].key) at = (at + 1) & (edges.size() - 1);
        nodes.emplace_back();
        edges[at] = {key, uint32_t(nodes.size() - 1)};
        edge_count++;
        return edges[at].child;
    }

    void walk(uint32_t number, const uint32_t* ids, int at, int count, std::vector<int>& out) const {
        const Node& node = nodes[number];
        for (int item : node.tail) out.push_back(item);
        if (at == count) {
            for (int item : node.here) out.push_back(item);
            return;
        }
        if (node.star) walk(node.star, ids, at + 1, count, out);
        if (ids[at])
            if (uint32_t child = edge_find(number, ids[at])) walk(child, ids, at + 1, count, out);
    }

public:
    void add(const char* pattern, size_t size, int item) {
        std::string_view text[words_max];
        const int count = split({pattern, size}, text);
        uint32_t node = 0;
        for (int i = 0; i < count; i++) {
            if (text[i] == "#") {
                nodes[node].tail.push_back(item);
                return;
            }
            if (text[i] == "*") {
                if (!nodes[node].star) {
                    nodes.emplace_back();
                    nodes[node].star = uint32_t(nodes.size() - 1);
                }
                node = nodes[node].star;
            } else {
                node = edge_make(node, word_make(text[i]));
            }
        }
        nodes[node].here.push_back(item);
    }

    void match(const char* address, size_t size, std::vector<int>& out) const {
        std::string_view text[words_max];
        uint32_t ids[words_max];
        const int count = split({address, size}, text);
        for (int i = 0; i < count; i++) ids[i] = word_find(text[i]);
        walk(0, ids, 0, count, out);
    }

    void match_cached(const char* address, size_t size, std::vector<int>& out) {
        const uint64_t hash = hash_of(address, size) | 1;
        size_t at = hash & (results.size() - 1);
        for (; results[at].hash; at = (at + 1) & (results.size() - 1)) {
            const Result& result = results[at];
            if (result.hash == hash && result.size == size && !std::memcmp(address_text.data() + result.offset, address, size)) {
                const int* first = result_items.data() + result.first;
                out.insert(out.end(), first, first + result.count);
                return;
            }
        }
        const size_t before = out.size();
        match(address, size, out);
        results[at] = {hash, uint32_t(address_text.size()), uint32_t(size), uint32_t(result_items.size()), uint32_t(out.size() - before)};
        address_text.append(address, size);
        result_items.insert(result_items.end(), out.begin() + before, out.end());
        result_count++;
        grow(results, result_count, [](const Result& r) { return r.hash; }, [](const Result& r) { return r.hash != 0; });
    }

    void forget() {     // the cached results
        results.assign(results.size(), Result());
        address_text.clear();
        result_items.clear();
        result_count = 0;
    }
};
